# haproxy as a TCP forwarder: haproxy-stream.sh PROCESSES LISTEN SERVER LISTEN SERVER, addresses with ports. A process
# holds two descriptors a connection, so that many connections need several; the kernel spreads connections over them.
# They take turns with the addresses of this host.
here=${0%/*}
export LISTEN="$2" SERVER="$3" LISTEN_SECOND="$4" SERVER_SECOND="$5"
sources=$(sh "$here/addresses.sh" "${2%:*}")
started=
trap 'kill $started' INT TERM
for number in $(seq "$1"); do
    SOURCE=$(echo "$sources" | awk -v number="$number" '{ of[NR] = $1 } END { print of[(number - 1) % NR + 1] }')
    export SOURCE
    printf 'global\n    nbthread 1\n' | haproxy -q -db -f /dev/stdin -f "$here/haproxy-stream.cfg" &
    started="$started $!"
done
# A trapped signal ends the first wait before the processes have ended.
wait || wait
