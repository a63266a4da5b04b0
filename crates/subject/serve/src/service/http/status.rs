//! Status codes.

/// A status code with its phrase (RFC 9110, section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(&'static str);

impl Status {
    pub(super) const OK: Status = Status("200 OK");
    pub(super) const PARTIAL_CONTENT: Status = Status("206 Partial Content");
    pub(super) const MOVED_PERMANENTLY: Status = Status("301 Moved Permanently");
    pub(super) const NOT_MODIFIED: Status = Status("304 Not Modified");
    pub(super) const BAD_REQUEST: Status = Status("400 Bad Request");
    pub(super) const FORBIDDEN: Status = Status("403 Forbidden");
    pub(super) const NOT_FOUND: Status = Status("404 Not Found");
    pub(super) const METHOD_NOT_ALLOWED: Status = Status("405 Method Not Allowed");
    pub(super) const REQUEST_TIMEOUT: Status = Status("408 Request Timeout");
    pub(super) const PRECONDITION_FAILED: Status = Status("412 Precondition Failed");
    pub(super) const CONTENT_TOO_LARGE: Status = Status("413 Content Too Large");
    pub(super) const URI_TOO_LONG: Status = Status("414 URI Too Long");
    pub(super) const RANGE_NOT_SATISFIABLE: Status = Status("416 Range Not Satisfiable");
    pub(super) const EXPECTATION_FAILED: Status = Status("417 Expectation Failed");
    pub(super) const FIELDS_TOO_LARGE: Status = Status("431 Request Header Fields Too Large");
    pub(super) const NOT_IMPLEMENTED: Status = Status("501 Not Implemented");
    pub(super) const SERVICE_UNAVAILABLE: Status = Status("503 Service Unavailable");
    pub(super) const VERSION_NOT_SUPPORTED: Status = Status("505 HTTP Version Not Supported");

    /// The code and its phrase.
    pub(super) fn phrase(self) -> &'static str {
        self.0
    }

    /// What a person reads.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Status::VERSION_NOT_SUPPORTED => {
                "505 HTTP Version Not Supported: this server speaks HTTP/1.0 and HTTP/1.1, and no other version\n"
            }
            Status::METHOD_NOT_ALLOWED => "405 Method Not Allowed: use GET or HEAD\n",
            _ => "",
        }
    }
}
