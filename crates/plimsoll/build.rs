//! Tells the program which commit it is built from, where git knows.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = sources(&root);
    let commit = commit(&root, &sources).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={commit}");
    // A path that does not exist would run this script at every build.
    let git = ["HEAD", "logs/HEAD"].into_iter().filter_map(|name| git_path(&root, name));
    for path in sources.into_iter().chain(git).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// What the program is made of.
fn sources(root: &Path) -> Vec<PathBuf> {
    let crates = ["base", "subject", "instrument"].into_iter().flat_map(|floor| {
        let folder = std::fs::read_dir(root.join("crates").join(floor)).into_iter().flatten().flatten();
        folder.map(|entry| entry.path().join("src"))
    });
    let rest = ["crates/plimsoll/src", "crates/plimsoll/build.rs", "Cargo.toml", "Cargo.lock"];
    crates.chain(rest.iter().map(|name| root.join(name))).collect()
}

/// The commit, and whether the sources differ from it.
fn commit(root: &Path, sources: &[PathBuf]) -> Option<String> {
    // An unpacked archive may lie within a repository of something else.
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root.canonicalize().ok()? {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=10", "HEAD"])?;
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(sources.iter().filter_map(|path| path.to_str()));
    let dirty = if git(root, &status)?.is_empty() { "" } else { "-dirty" };
    Some(format!("{commit}{dirty}"))
}

fn git_path(root: &Path, name: &str) -> Option<PathBuf> {
    git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path))
}

/// What git says, without a lock that a person's git would meet.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // Within a git hook these name the repository of the hook.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    let output = git.arg("--no-optional-locks").args(arguments).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
