//! The protocols of `load`.

use clap::{Args, Subcommand};

use super::{echo, http};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) protocol: Protocol,
}

#[derive(Debug, Subcommand)]
pub(super) enum Protocol {
    /// Send random messages and check that they come back.
    #[command(after_help = "\
Examples:
  plimsoll load echo 127.0.0.1:7000                               64 connections for 10 seconds
  plimsoll load echo 127.0.0.1:7000 -c 2500 --each 60 --think 1s  60 requests on each of 2500 connections
  plimsoll load echo 127.0.0.1:7000 -c 1M --barrier --each 2      a million connections, all up before the first \
                            request
  plimsoll load echo 127.0.0.1:7000 -R 20k -d 30s                 20,000 requests a second, however slow the answers
  plimsoll load echo HOST:7 -d 30s --limit 'response_time.p99 < 50ms' --json")]
    Echo(echo::Arguments),
    /// Fetch URLs over HTTP/1.x.
    #[command(after_help = "\
Examples:
  plimsoll load http http://127.0.0.1:8000/index.html             64 connections \
                            for 10 seconds
  plimsoll load http http://HOST/a http://HOST/b -c 100 -R 5k     two files \
                            in turn, 5,000 requests a second
  plimsoll load http http://HOST/file --http 1.0 -n 100 -c \
                            5      a connection for each of 100 fetches
  plimsoll load http http://HOST/api --data '{\"a\": \
                            1}' -H 'Content-Type: application/json'
  plimsoll load http https://HOST/ --cacert authority.pem --limit 'statuses.404 == 0'")]
    Http(http::Arguments),
}
