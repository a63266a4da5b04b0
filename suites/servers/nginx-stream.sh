# The stream module of nginx as a TCP forwarder: nginx-stream.sh WORKERS FOLDER LISTEN SERVER LISTEN SERVER, addresses
# with ports. A worker holds two descriptors a connection, so that many connections need several; the kernel spreads
# connections over them. They take turns with the addresses of this host. It removes its pid file as it ends.
module=/usr/lib/nginx/modules/ngx_stream_module.so
if [ ! -e "$module" ]; then
    echo "nginx has no stream module: $module is missing; install libnginx-mod-stream" >&2
    exit 1
fi
sources=$(sh "${0%/*}/addresses.sh" "${3%:*}")
# From a file: nginx reads as many bytes as the file says it has, and a pipe says none.
cat >"$2/nginx-stream.conf" <<END
load_module $module;
daemon off;
worker_processes $1;
pid $2/nginx-stream.pid;
worker_rlimit_nofile $(ulimit -Hn);
events { worker_connections $(ulimit -Hn); }
stream {
    tcp_nodelay on;
    split_clients \$remote_addr:\$remote_port \$source {
$(echo "$sources" | awk '{ of[NR] = $1 } END { for (i = 1; i < NR; i++) printf "%.2f%% %s;\n", 100 / NR, of[i]; print "* " of[NR] ";" }')
    }
    proxy_bind \$source;
    server { listen $3 backlog=65535 reuseport; proxy_pass $4; }
    server { listen $5 backlog=65535 reuseport; proxy_pass $6; }
}
END
exec nginx -e stderr -c "$2/nginx-stream.conf"
