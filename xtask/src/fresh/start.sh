# Starts a gateway with the command $1, waits until it is healthy, then stops it. Exits with the gateway's exit code.
$1 &
gateway=$!
until curl --silent --fail "http://127.0.0.1:$PORT/health"; do
    kill -0 "$gateway"
    sleep 1
done
kill -TERM "$gateway"
wait "$gateway"
