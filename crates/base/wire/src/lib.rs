//! Echo messages and HTTP/1.x.
