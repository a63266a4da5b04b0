# Every IPv4 address of the interface that has ADDRESS, one a line: addresses.sh ADDRESS. A forwarder takes turns with
# them: from one it has a port for each connection to a server, some 28,000.
own=$(ip -4 -o address show to "$1" | awk '{ print $2 }')
ip -4 -o address show dev "$own" | awk '{ sub("/.*", "", $4); print $4 }'
