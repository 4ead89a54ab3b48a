//! A description of all tables: which columns they have, and which of those are sealed. What moves the data to another
//! database works with it, so that no such code knows single tables.

use sqlx::{AssertSqlSafe, Row as _};
use zeroize::Zeroizing;

use super::db::{Tx, on};
use super::tokens::TokenColumns;
use super::{audit, authorizations, grants, idp_tokens, oauth, server_config, tokens};
use seal::Seal;

/// The number of rows that are in memory at once.
const PAGE: i64 = 100;

pub(super) struct Table {
    pub name: &'static str,
    pub columns: &'static [Column],
    /// How many of the columns, from the first on, are the primary key.
    keys: usize,
    /// The condition for rows that are data; the others are about the database itself.
    condition: &'static str,
}

pub(super) struct Column {
    pub name: &'static str,
    content: Content,
}

#[derive(Clone, Copy)]
enum Content {
    Text,
    Number,
    Bytes,
    /// Sealed for the purpose that the function makes of the first column; empty if it was wiped.
    Sealed(fn(&str) -> String),
    /// The keyed hash of what is sealed in the same row.
    TokenHash,
}

/// Every table with data, in an order in which no row refers to a later table.
pub(super) const TABLES: [Table; 23] = [
    Table {
        condition: "key NOT IN ('key_check', 'backup', 'next_key', 'previous_key')",
        ..table("settings", 1, &[text("key"), text("value")])
    },
    table(
        "servers",
        1,
        &[
            text("name"),
            sealed("config", server_config::purpose),
            number("enabled"),
            text("protocol_version"),
            text("server_info"),
            text("capabilities"),
            text("instructions"),
            number("ttl_ms"),
            number("is_private"),
            number("created_at"),
            number("updated_at"),
            number("discovered_at"),
            text("meta"),
        ],
    ),
    table("disabled", 3, &[text("server"), text("kind"), text("name")]),
    table("catalogs", 2, &[text("server"), text("kind"), text("items")]),
    table("groups", 1, &[text("name"), text("config"), number("created_at"), number("updated_at")]),
    table(
        "users",
        1,
        &[
            text("username"),
            text("role"),
            hash("token_hash"),
            sealed("token", tokens::purpose),
            number("token_id"),
            number("created_at"),
            number("updated_at"),
            number("id"),
            text("rate_limit"),
            text("allow_list"),
            number("is_disabled"),
            number("last_seen_at"),
        ],
    ),
    table(
        "idp_users",
        1,
        &[
            text("username"),
            number("id"),
            text("issuer"),
            text("subject"),
            text("idp_groups"),
            text("role"),
            text("rate_limit"),
            text("allow_list"),
            number("is_disabled"),
            number("created_at"),
            number("updated_at"),
            number("last_seen_at"),
        ],
    ),
    table(
        "idp_tokens",
        1,
        &[
            number("user_id"),
            sealed("content", idp_tokens::purpose),
            number("signed_in_at"),
            number("checked_at"),
        ],
    ),
    table(
        "idp_groups",
        1,
        &[
            text("name"),
            text("role"),
            text("allow_list"),
            text("rate_limit"),
            number("created_at"),
            number("updated_at"),
        ],
    ),
    table(
        "clients",
        1,
        &[
            text("name"),
            text("description"),
            text("allow_list"),
            number("is_custom_token"),
            hash("token_hash"),
            sealed("token", tokens::purpose),
            number("token_id"),
            number("created_at"),
            number("updated_at"),
            number("id"),
            text("rate_limit"),
            text("jwt_subject"),
        ],
    ),
    table(
        "oauth_grants",
        1,
        &[
            text("server"),
            text("lineage"),
            sealed("content", grants::purpose),
            number("updated_at"),
            number("renewing_until"),
        ],
    ),
    table(
        "oauth_authorizations",
        1,
        &[
            text("id"),
            text("server"),
            text("state_digest"),
            text("status"),
            text("error"),
            sealed("content", authorizations::purpose),
            number("expires_at"),
            number("finished_at"),
        ],
    ),
    table("token_keys", 1, &[text("name"), sealed("content", oauth::key_purpose)]),
    table(
        "user_grants",
        1,
        &[
            text("id"),
            number("user_id"),
            text("client_id"),
            text("client_name"),
            sealed("software", oauth::grant_purpose),
            text("reach"),
            number("created_at"),
            number("last_used_at"),
            number("expires_at"),
        ],
    ),
    table(
        "refresh_tokens",
        1,
        &[
            text("digest"),
            text("grant_id"),
            number("expires_at"),
            number("rotated_at"),
            text("successor_digest"),
            sealed("successor", oauth::successor_purpose),
        ],
    ),
    table(
        "grant_codes",
        1,
        &[
            text("digest"),
            number("user_id"),
            sealed("content", oauth::code_purpose),
            number("expires_at"),
            number("used_at"),
            text("grant_id"),
        ],
    ),
    table(
        "consents",
        1,
        &[
            text("id"),
            number("user_id"),
            text("client"),
            text("redirect"),
            number("is_remembered"),
            number("agreed_at"),
        ],
    ),
    table(
        "browser_sessions",
        1,
        &[text("digest"), number("user_id"), number("created_at"), number("used_at")],
    ),
    table(
        "oauth_clients",
        1,
        &[
            text("id"),
            text("client_id"),
            text("name"),
            sealed("software", oauth::client_purpose),
            number("created_at"),
        ],
    ),
    table("changes", 2, &[text("kind"), text("name"), number("epoch")]),
    table("ended_sessions", 1, &[number("serial"), number("ended_at")]),
    table(
        "audit_head",
        1,
        &[
            text("name"),
            sealed("chain_key", audit::key_purpose),
            number("number"),
            bytes("hash"),
            number("anchor_number"),
            bytes("anchor_hash"),
            bytes("anchor_proof"),
        ],
    ),
    table(
        "audit",
        1,
        &[
            number("number"),
            number("at"),
            text("actor_kind"),
            text("actor"),
            text("action"),
            text("target"),
            sealed("before_value", audit::value_purpose),
            sealed("after_value", audit::value_purpose),
            text("outcome"),
            text("address"),
            number("count"),
            bytes("hash"),
        ],
    ),
];

/// Hashes of tokens that no longer exist: under another key they cannot be computed again.
pub(super) const RETIRED_TOKENS: Table =
    table("retired_tokens", 1, &[bytes("token_hash"), number("retired_at")]);

const fn table(name: &'static str, keys: usize, columns: &'static [Column]) -> Table {
    Table { name, columns, keys, condition: "1 = 1" }
}

const fn text(name: &'static str) -> Column {
    Column { name, content: Content::Text }
}

const fn number(name: &'static str) -> Column {
    Column { name, content: Content::Number }
}

const fn bytes(name: &'static str) -> Column {
    Column { name, content: Content::Bytes }
}

const fn sealed(name: &'static str, purpose: fn(&str) -> String) -> Column {
    Column { name, content: Content::Sealed(purpose) }
}

const fn hash(name: &'static str) -> Column {
    Column { name, content: Content::TokenHash }
}

#[derive(Clone, PartialEq)]
pub(super) enum Value {
    Text(Option<String>),
    Number(Option<i64>),
    Bytes(Option<Zeroizing<Vec<u8>>>),
}

/// The values of a row, in the order of the columns.
pub(super) type Row = Vec<Value>;

/// Binds values to the parameters of a query, whichever database it is for.
macro_rules! bind_all {
    ($query:expr, $values:expr) => {
        $values.fold($query, |query, value| match value {
            Value::Text(text) => query.bind(text.as_deref()),
            Value::Number(number) => query.bind(*number),
            Value::Bytes(bytes) => query.bind(bytes.as_ref().map(|bytes| bytes.as_slice())),
        })
    };
}

impl Table {
    pub(super) async fn count(&self, tx: &mut Tx) -> Result<i64, sqlx::Error> {
        let sql = format!("SELECT COUNT(*) FROM {} WHERE {}", self.name, self.condition);
        on!(tx, |db| sqlx::query_scalar(AssertSqlSafe(sql.as_str())).fetch_one(db).await)
    }

    /// Reads the rows after the first `offset` ones, ordered by their keys in the same way on every database. No rows are
    /// left if there are none.
    pub(super) async fn page(&self, tx: &mut Tx, offset: usize) -> Result<Vec<Row>, sqlx::Error> {
        let collation = match tx {
            Tx::Sqlite(_) => "",
            Tx::Postgres(_) => " COLLATE \"C\"",
        };
        let ordered = |column: &Column| match column.content {
            Content::Text => format!("{}{collation}", column.name),
            Content::Number | Content::Bytes | Content::Sealed(_) | Content::TokenHash => column.name.into(),
        };
        let order: Vec<String> = self.columns[..self.keys].iter().map(ordered).collect();
        let sql = format!(
            "SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT $1 OFFSET $2",
            self.column_names(),
            self.name,
            self.condition,
            order.join(", ")
        );
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        on!(tx, |db| {
            let query = sqlx::query(AssertSqlSafe(sql.as_str())).bind(PAGE).bind(offset);
            query.fetch_all(db).await.and_then(|rows| {
                let mut page = Vec::with_capacity(rows.len());
                for row in &rows {
                    let mut values = Row::with_capacity(self.columns.len());
                    for (index, column) in self.columns.iter().enumerate() {
                        values.push(match column.content {
                            Content::Text => Value::Text(row.try_get(index)?),
                            Content::Number => Value::Number(row.try_get(index)?),
                            Content::Bytes | Content::Sealed(_) | Content::TokenHash => {
                                Value::Bytes(row.try_get::<Option<Vec<u8>>, _>(index)?.map(Zeroizing::new))
                            }
                        });
                    }
                    page.push(values);
                }
                Ok(page)
            })
        })
    }

    pub(super) async fn insert(&self, tx: &mut Tx, row: Row) -> Result<(), sqlx::Error> {
        let places: Vec<String> = (1..=self.columns.len()).map(|number| format!("${number}")).collect();
        let sql =
            format!("INSERT INTO {} ({}) VALUES ({})", self.name, self.column_names(), places.join(", "));
        on!(tx, |db| {
            let query = bind_all!(sqlx::query(AssertSqlSafe(sql.as_str())), row.iter());
            query.execute(db).await.map(|_| ())
        })
    }

    /// Whether anything in it is sealed.
    pub(super) fn is_sealed(&self) -> bool {
        self.columns.iter().any(|column| matches!(column.content, Content::Sealed(_)))
    }

    /// Replaces what is sealed in a row, unless somebody else has changed that. Returns whether it did.
    pub(super) async fn reseal(&self, tx: &mut Tx, before: &Row, after: &Row) -> Result<bool, sqlx::Error> {
        let (mut values, mut changes, mut conditions) = (Vec::new(), Vec::new(), Vec::new());
        for (column, value) in self.columns.iter().zip(after) {
            if let Content::Sealed(_) | Content::TokenHash = column.content {
                values.push(value);
                changes.push(format!("{} = ${}", column.name, values.len()));
            }
        }
        for (index, (column, value)) in self.columns.iter().zip(before).enumerate() {
            if index < self.keys || matches!(column.content, Content::Sealed(_)) {
                values.push(value);
                conditions.push(format!("{} = ${}", column.name, values.len()));
            }
        }
        let (changes, conditions) = (changes.join(", "), conditions.join(" AND "));
        let sql = format!("UPDATE {} SET {changes} WHERE {conditions}", self.name);
        on!(tx, |db| {
            let query = bind_all!(sqlx::query(AssertSqlSafe(sql.as_str())), values.iter().copied());
            query.execute(db).await.map(|done| done.rows_affected() > 0)
        })
    }

    /// Names a row without showing what is secret in it.
    pub(super) fn name_of(&self, row: &Row) -> String {
        let keys = row[..self.keys].iter().map(|value| match value {
            Value::Text(text) => text.clone().unwrap_or_default(),
            Value::Number(number) => number.unwrap_or_default().to_string(),
            Value::Bytes(_) => "?".to_owned(),
        });
        format!("row \"{}\" of table {}", keys.collect::<Vec<_>>().join(", "), self.name)
    }

    fn column_names(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }
}

/// Opens and seals the rows of all tables under one key.
pub(super) struct RowSeal {
    pub seal: Seal,
    tokens: TokenColumns,
}

impl RowSeal {
    pub(super) fn new(seal: Seal) -> Self {
        Self { tokens: TokenColumns::new(&seal), seal }
    }

    /// Opens what is sealed in a row, and removes the hashes made of it. The error names the row.
    pub(super) fn open(&self, table: &Table, mut row: Row) -> Result<Row, String> {
        let mut opened = Zeroizing::new(Vec::new());
        for index in 0..row.len() {
            let Content::Sealed(purpose) = table.columns[index].content else { continue };
            let purpose = purpose(first_text(&row));
            let Value::Bytes(Some(sealed)) = &row[index] else { continue };
            if sealed.is_empty() {
                continue;
            }
            let plain = self.seal.open(&purpose, sealed);
            opened = plain.map_err(|error| format!("{}: {error}", table.name_of(&row)))?;
            row[index] = Value::Bytes(Some(opened.clone()));
        }
        for index in 0..row.len() {
            let Content::TokenHash = table.columns[index].content else { continue };
            let fits = matches!(&row[index], Value::Bytes(Some(hash)) if self.tokens.fits(hash, &opened));
            if !fits {
                return Err(format!("{}: its token does not match its hash", table.name_of(&row)));
            }
            row[index] = Value::Bytes(None);
        }
        Ok(row)
    }

    /// Seals an opened row.
    pub(super) fn seal(&self, table: &Table, mut row: Row) -> Row {
        let mut hash = None;
        for index in 0..row.len() {
            let Content::Sealed(purpose) = table.columns[index].content else { continue };
            let purpose = purpose(first_text(&row));
            let Value::Bytes(Some(plain)) = &row[index] else { continue };
            if plain.is_empty() {
                continue;
            }
            hash = Some(Zeroizing::new(self.tokens.hash(plain).as_bytes().to_vec()));
            row[index] = Value::Bytes(Some(Zeroizing::new(self.seal.seal(&purpose, plain))));
        }
        for (value, column) in row.iter_mut().zip(table.columns) {
            if let Content::TokenHash = column.content {
                *value = Value::Bytes(hash.clone());
            }
        }
        row
    }
}

fn first_text(row: &Row) -> &str {
    match row.first() {
        Some(Value::Text(Some(text))) => text,
        Some(Value::Text(None) | Value::Number(_) | Value::Bytes(_)) | None => "",
    }
}
