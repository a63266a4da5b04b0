//! The whole program, tested from outside: one test program, so that one change links once.
//!
//! A file here is a subject; `support` starts the processes under test and their peers.

mod support;

mod bad_input;
mod capture;
mod capture_random;
mod command_line;
mod forward;
mod forward_accept;
mod forward_addresses;
mod forward_destinations;
mod forward_injected;
mod forward_limits;
mod forward_log;
mod forward_peers;
mod forward_places;
mod forward_rules;
mod forward_service;
mod forward_shortages;
mod forward_table;
mod forward_torture;
mod forward_upgrade;
mod instruments_injected;
mod link;
mod link_kernel;
mod load_await_start;
mod load_connects;
mod load_counts;
mod load_early;
mod load_echo;
mod load_engines;
mod load_fork;
mod load_http;
mod load_http_requests;
mod load_https;
mod load_injected;
mod load_matrix;
mod load_merge;
mod load_open;
mod load_records;
mod load_starts;
mod load_tcpbenchmark;
mod load_threads;
mod load_valgrind;
mod scale;
mod serve_accept;
mod serve_echo;
mod serve_end;
mod serve_http;
mod serve_http_time;
mod serve_injected;
mod serve_models;
mod serve_settings;
mod serve_walk;
mod valgrind;
