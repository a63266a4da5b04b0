# The stream module of nginx as a TCP forwarder: nginx-stream.sh FOLDER LISTEN SERVER LISTEN SERVER, addresses with
# ports. It removes its pid file as it ends.
module=/usr/lib/nginx/modules/ngx_stream_module.so
if [ ! -e "$module" ]; then
    echo "nginx has no stream module: $module is missing; install libnginx-mod-stream" >&2
    exit 1
fi
# From a file: nginx reads as many bytes as the file says it has, and a pipe says none.
cat >"$1/nginx-stream.conf" <<END
load_module $module;
daemon off;
master_process off;
pid $1/nginx-stream.pid;
worker_rlimit_nofile $(ulimit -Hn);
events { worker_connections $(ulimit -Hn); }
stream {
    tcp_nodelay on;
    server { listen $2 backlog=65535; proxy_pass $3; }
    server { listen $4 backlog=65535; proxy_pass $5; }
}
END
exec nginx -e stderr -c "$1/nginx-stream.conf"
