# The stream module of nginx as a TCP forwarder: nginx-stream.sh LISTEN SERVER FOLDER, addresses with ports.
# It removes its pid file as it ends.
module=/usr/lib/nginx/modules/ngx_stream_module.so
if [ ! -e "$module" ]; then
    echo "nginx has no stream module: $module is missing; install libnginx-mod-stream" >&2
    exit 1
fi
# From a file: nginx reads as many bytes as the file says it has, and a pipe says none.
cat >"$3/nginx-stream.conf" <<END
load_module $module;
daemon off;
master_process off;
pid $3/nginx-stream.pid;
worker_rlimit_nofile $(ulimit -Hn);
events { worker_connections $(ulimit -Hn); }
stream { server { listen $1 backlog=65535; tcp_nodelay on; proxy_pass $2; } }
END
exec nginx -e stderr -c "$3/nginx-stream.conf"
