//! What a request's target names: a path beneath the root, or bytes without a file.

use std::time::Duration;

use percent_encoding::percent_decode;
use plimsoll_measure::units;

use super::syntax::is_authority;

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A file, whose path was written.
    Path,
    /// So many bytes, after so much work.
    Synthetic { length: u64, burn: Duration },
    /// Nothing that this server can have.
    Bad,
}

/// More work than this in one request is a mistake.
const MOST_WORK: Duration = Duration::from_secs(60);

/// Reads a target, and appends the path that it names, relative and decoded, to `path`.
pub(super) fn read(target: &str, synthetic: bool, path: &mut Vec<u8>) -> Target {
    // An `http` URI without a host is none (RFC 9110, section 4.2.1).
    if authority(target).is_some_and(|host| host.is_empty() || host.starts_with(':') || !is_authority(host.as_bytes()))
    {
        return Target::Bad;
    }
    let (name, _) = split(target);
    let Some(name) = name.strip_prefix('/') else { return Target::Bad };
    if synthetic && let Some(target) = synthetic_target(name) {
        return target;
    }
    let start = path.len();
    path.extend(percent_decode(name.trim_start_matches('/').as_bytes()));
    let decoded = &path[start..];
    // The kernel keeps paths beneath the root whatever they are; these have no honest use at all.
    if decoded.contains(&0) || decoded.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Target::Bad;
    }
    // What was an encoded slash must not make the path absolute.
    let slashes = decoded.iter().take_while(|byte| **byte == b'/').count();
    path.drain(start..start + slashes);
    if path[start..].last().is_none_or(|byte| *byte == b'/') {
        path.extend(b"index.html");
    }
    Target::Path
}

/// A target's path, and its query with the question mark.
pub(super) fn split(target: &str) -> (&str, &str) {
    let rest = authority(target).map_or(target, |host| &target[SCHEME.len() + host.len()..]);
    let (path, query) = rest.find('?').map_or((rest, ""), |query| rest.split_at(query));
    // After a host an empty path is `/` (RFC 9110, section 4.2.3).
    if path.is_empty() { ("/", query) } else { (path, query) }
}

const SCHEME: &str = "http://";

/// The host and port of a target in a proxy's form, which every server must take (RFC 9112, section
/// 3.2.2).
fn authority(target: &str) -> Option<&str> {
    let scheme = target.get(..SCHEME.len())?;
    let rest = &target[SCHEME.len()..];
    scheme.eq_ignore_ascii_case(SCHEME).then(|| &rest[..rest.find(['/', '?']).unwrap_or(rest.len())])
}

/// The Content-Type of a file by its name.
pub(super) fn kind(path: &[u8]) -> &'static str {
    let name = std::str::from_utf8(path).unwrap_or_default();
    let kind = mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream");
    match kind {
        "text/html" => "text/html; charset=utf-8",
        "text/plain" => "text/plain; charset=utf-8",
        "text/css" => "text/css; charset=utf-8",
        "text/javascript" => "text/javascript; charset=utf-8",
        "text/csv" => "text/csv; charset=utf-8",
        "text/markdown" => "text/markdown; charset=utf-8",
        kind => kind,
    }
}

/// `bytes/N` and `burn/DURATION/N`.
fn synthetic_target(name: &str) -> Option<Target> {
    let (burn, length) = if let Some(length) = name.strip_prefix("bytes/") {
        (Duration::ZERO, length)
    } else {
        let (burn, length) = name.strip_prefix("burn/")?.split_once('/')?;
        match units::duration(burn) {
            Ok(burn) if burn <= MOST_WORK => (burn, length),
            _ => return Some(Target::Bad),
        }
    };
    Some(units::size(length).map_or(Target::Bad, |length| Target::Synthetic { length, burn }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(target: &str) -> Option<String> {
        let mut path = b"before".to_vec();
        let read = read(target, false, &mut path);
        (read == Target::Path).then(|| String::from_utf8_lossy(&path[6..]).into_owned())
    }

    #[test]
    fn a_target_names_a_relative_path() {
        for (target, expected) in [
            ("/", "index.html"),
            ("/a/b.txt", "a/b.txt"),
            ("/a/", "a/index.html"),
            ("/a%20b%2fc?x=/y", "a b/c"),
            ("//etc/passwd", "etc/passwd"),
            ("/%2f%2fetc/passwd", "etc/passwd"),
            ("http://host:8000/a", "a"),
            ("HTTP://host", "index.html"),
            ("http://host?x=y", "index.html"),
            ("http://[::1]:80?x", "index.html"),
            ("/100%", "100%"),
            ("/...", "..."),
        ] {
            assert_eq!(path(target).as_deref(), Some(expected), "{target}");
        }
        for target in [
            "*",
            "host:80",
            "a",
            "/../a",
            "/a/%2e%2e/b",
            "/a/..%2fb",
            "/a%00b",
            "https://host/a",
            "http://:80:80/",
            "http:///a",
            "http://:80/",
            "http://u@h/",
        ] {
            assert_eq!(path(target), None, "{target}");
        }
    }

    #[test]
    fn synthetic_targets_say_how_much_and_how_dear() {
        let read = |target| read(target, true, &mut Vec::new());
        let of = |length, burn| Target::Synthetic { length, burn };
        assert_eq!(read("/bytes/75672?x"), of(75672, Duration::ZERO));
        assert_eq!(read("/burn/1ms/64KiB"), of(65536, Duration::from_millis(1)));
        assert_eq!(read("/bytes/-1"), Target::Bad);
        assert_eq!(read("/burn/2h/1"), Target::Bad);
        assert_eq!(read("/bytes"), Target::Path);
    }
}
