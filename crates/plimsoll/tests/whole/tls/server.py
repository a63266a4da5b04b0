"""An HTTPS server of Python's own, for the generator to load: server.py CERTIFICATE KEY
[AUTHORITY].

With AUTHORITY it asks for client certificates that this authority signed. GET /N answers with N
bytes. /cut/N ends the body with the connection and says no close_notify, /end/N says it, /idle/N
says it after a body of known length, /bad/N sends what is no TLS after such a body, together with
it.
"""
import http.server
import os
import socket
import ssl
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together, so that no delayed acknowledgement is measured
    disable_nagle_algorithm = True

    def do_GET(self):
        *way, length = self.path[1:].split("/")
        self.send_response(200)
        if way not in (["cut"], ["end"]):
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(b"x" * int(length))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, way == ["bad"])
        self.wfile.flush()
        if way == ["bad"]:
            os.write(self.connection.fileno(), b"this is no record of TLS")
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        if way:
            self.close_connection = True
        if way in (["end"], ["idle"]):
            self.connection.unwrap()
        if way:
            self.connection.shutdown(socket.SHUT_WR)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # a client that does not believe the certificate is what a test is about


server = Server(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
if len(sys.argv) > 3:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
