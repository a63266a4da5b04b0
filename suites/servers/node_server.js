"use strict";
// The smallest Node server: every request gets a short text. node node_server.js PORT
const http = require("node:http");

const body = "Hello, world\n";
const server = http.createServer((request, response) => {
  response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": Buffer.byteLength(body) });
  response.end(body);
});
server.keepAliveTimeout = 60_000;
server.listen({ host: "127.0.0.1", port: Number(process.argv[2]), backlog: 4096 });
