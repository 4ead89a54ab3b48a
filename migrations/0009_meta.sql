-- The `_meta` objects of a server's handshake and lists, as one JSON object; NULL is none.

ALTER TABLE servers ADD COLUMN meta TEXT;
