# The stream module of nginx as a TCP forwarder: nginx-stream.sh LISTEN SERVER FOLDER, addresses with ports.
# nginx reads its configuration from its input. It removes its pid file as it ends.
module=/usr/lib/nginx/modules/ngx_stream_module.so
if [ ! -e "$module" ]; then
    echo "nginx has no stream module: $module is missing; install libnginx-mod-stream" >&2
    exit 1
fi
exec nginx -e stderr -c /dev/stdin <<END
load_module $module;
daemon off;
master_process off;
pid $3/nginx-stream.pid;
worker_rlimit_nofile $(ulimit -Hn);
events { worker_connections $(ulimit -Hn); }
stream { server { listen $1 backlog=65535; tcp_nodelay on; proxy_pass $2; } }
END
