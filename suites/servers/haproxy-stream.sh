# haproxy as a TCP forwarder: haproxy-stream.sh PROCESSES LISTEN SERVER LISTEN SERVER, addresses with ports. A process
# holds two descriptors a connection, so that many connections need several; the kernel spreads connections over them.
export LISTEN="$2" SERVER="$3" LISTEN_SECOND="$4" SERVER_SECOND="$5"
started=
trap 'kill $started' INT TERM
for _ in $(seq "$1"); do
    printf 'global\n    nbthread 1\n' | haproxy -q -db -f /dev/stdin -f "${0%.sh}.cfg" &
    started="$started $!"
done
# A trapped signal ends the first wait before the processes have ended.
wait || wait
