//! Static bearer tokens from a file, of which only hashes are stored.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use subtle::{Choice, ConstantTimeEq as _};
use virtfleet_collector_core::access::{AuthMethod, Caller};

use super::grant::{Grant, GrantError};
use crate::regular_file::read_regular;

/// Minimum interval between two reads of the file. It is read each time: its size and time say
/// nothing about its mode, and may be the same after a change.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of tokens: each request is compared with all of them.
const MAX_TOKENS: usize = 4096;
/// Maximum length of a token's name.
const MAX_NAME_CHARS: usize = 253;
const HASH_PREFIX: &str = "sha256:";
/// Bits of a file's mode with which others than its owner may write it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// SHA-256 of a token.
type TokenHash = [u8; SHA256_OUTPUT_LEN];

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// Its group or all users may write it, and so give themselves every right.
    #[error(
        "{} has mode {mode:04o}: others than its owner may add tokens to it; run: chmod go-w {}",
        file.display(),
        file.display()
    )]
    Writable { file: PathBuf, mode: u32 },
    #[error("{}:{line}: {problem}", file.display())]
    Line {
        file: PathBuf,
        line: usize,
        /// What is wrong, and the correct form.
        problem: TokenLineError,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum TokenLineError {
    /// It has too few fields.
    #[error("not `sha256:<64 hexadecimal digits>,<name>,<scope>…`")]
    Form,
    /// A field is not a scope.
    #[error(transparent)]
    Scope(#[from] GrantError),
    #[error("the token of line {0} occurs again")]
    Twice(usize),
    #[error("more than {MAX_TOKENS} tokens")]
    TooMany,
}

#[derive(Debug, PartialEq)]
struct StaticToken {
    hash: TokenHash,
    name: String,
    grant: Grant,
}

#[derive(Debug)]
struct LoadedTokens {
    tokens: Arc<[StaticToken]>,
    /// The file as it was read last, or why it was not.
    content: Result<String, String>,
    checked: Instant,
}

/// The tokens of a file, read again while it is used.
#[derive(Debug)]
pub struct StaticTokens {
    file: PathBuf,
    loaded: Mutex<LoadedTokens>,
}

impl StaticTokens {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, others than its owner may write it, or a line is wrong.
    pub fn open(file: &Path, now: Instant) -> Result<Self, TokenFileError> {
        let content = read(file)?;
        Ok(Self {
            loaded: Mutex::new(LoadedTokens {
                tokens: parse(file, &content)?.into(),
                content: Ok(content),
                checked: now,
            }),
            file: file.to_owned(),
        })
    }

    pub fn count(&self) -> usize {
        self.loaded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tokens
            .len()
    }

    /// The caller with a token, and its rights; none for an unknown token. Takes the same time for
    /// every token of a length.
    pub(super) fn caller(&self, token: &str, now: Instant) -> Option<(Caller, Grant)> {
        let hash = digest(&SHA256, token.as_bytes());
        let tokens = self.current(now);
        let mut found = None;
        for token in tokens.iter() {
            let equal: Choice = token.hash.ct_eq(hash.as_ref());
            if equal.into() {
                found = Some(token);
            }
        }
        found.map(|token| {
            let caller = Caller::new(token.name.as_str(), AuthMethod::StaticToken);
            (caller, token.grant.clone())
        })
    }

    fn current(&self, now: Instant) -> Arc<[StaticToken]> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(loaded.checked) >= CHECK_INTERVAL {
            loaded.checked = now;
            loaded.reload(&self.file);
        }
        Arc::clone(&loaded.tokens)
    }
}

impl LoadedTokens {
    /// Reads the file again. Without a file that can be read, no token is valid. In one with a
    /// wrong line, tokens that are as they were stay valid, and there is no new one: whatever an
    /// admin has removed is not valid any more. An error is logged once for each change.
    fn reload(&mut self, file: &Path) {
        let read = read(file);
        let content = match &read {
            Ok(text) => Ok(text.clone()),
            Err(error) => Err(format!("{error:?}")),
        };
        if content == self.content {
            return;
        }
        self.content = content;
        let (tokens, error) = match read {
            Ok(text) => match parse(file, &text) {
                Ok(tokens) => (tokens, None),
                Err(error) => (unchanged(&text, &self.tokens), Some(error)),
            },
            Err(error) => (Vec::new(), Some(error)),
        };
        self.tokens = tokens.into();
        let (file, tokens) = (file.display(), self.tokens.len());
        match &error {
            None => tracing::info!(%file, tokens, "static tokens reloaded"),
            Some(error) => {
                let error = error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    tokens,
                    "changed static tokens cannot be used; only those that are unchanged in the file stay valid"
                );
            }
        }
    }
}

fn read(file: &Path) -> Result<String, TokenFileError> {
    let failed = |source| TokenFileError::Read {
        file: file.to_owned(),
        source,
    };
    let opened = read_regular(file).map_err(failed)?;
    let mode = opened.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(TokenFileError::Writable {
            file: file.to_owned(),
            mode,
        });
    }
    let mut text = String::new();
    opened
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::other(format!(
            "larger than {MAX_FILE_BYTES} bytes"
        ))));
    }
    Ok(text)
}

/// All tokens of a file without a wrong line.
fn parse(file: &Path, text: &str) -> Result<Vec<StaticToken>, TokenFileError> {
    let (mut tokens, mut lines) = (Vec::new(), BTreeMap::<TokenHash, usize>::new());
    for (line, entry) in entries(text) {
        let wrong = |problem| TokenFileError::Line {
            file: file.to_owned(),
            line,
            problem,
        };
        let token = parse_entry(entry).map_err(wrong)?;
        if let Some(known) = lines.insert(token.hash, line) {
            return Err(wrong(TokenLineError::Twice(known)));
        }
        if tokens.len() == MAX_TOKENS {
            return Err(wrong(TokenLineError::TooMany));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// The tokens of a file with wrong lines that are as they were. One that also has another name or
/// other rights in it is left out.
fn unchanged(text: &str, known: &[StaticToken]) -> Vec<StaticToken> {
    let mut known: BTreeMap<_, _> = known.iter().map(|token| (token.hash, token)).collect();
    let mut found = BTreeMap::new();
    for token in entries(text).filter_map(|(_, entry)| parse_entry(entry).ok()) {
        match known.get(&token.hash) {
            Some(same) if **same == token => drop(found.insert(token.hash, token)),
            Some(_) => {
                known.remove(&token.hash);
                found.remove(&token.hash);
            }
            None => {}
        }
    }
    found.into_values().collect()
}

/// The lines that are neither empty nor comments, with their numbers.
fn entries(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn parse_entry(entry: &str) -> Result<StaticToken, TokenLineError> {
    let mut fields = entry.split(',').map(str::trim);
    let hash = fields.next().and_then(|field| field.strip_prefix(HASH_PREFIX));
    let hash = hash.and_then(parse_hash).ok_or(TokenLineError::Form)?;
    let is_name = |name: &&str| {
        !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control)
    };
    let name = fields.next().filter(is_name).ok_or(TokenLineError::Form)?;
    let scopes: Vec<&str> = fields.collect();
    if scopes.is_empty() {
        return Err(TokenLineError::Form);
    }
    Ok(StaticToken {
        hash,
        name: name.to_owned(),
        grant: Grant::parse(scopes)?,
    })
}

fn parse_hash(text: &str) -> Option<TokenHash> {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    if text.len() != 2 * hash.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::Write as _,
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use tempfile::TempDir;

    use super::*;
    use crate::regular_file::make_fifo;

    fn line(token: &str, rest: &str) -> String {
        let mut line = HASH_PREFIX.to_owned();
        for byte in digest(&SHA256, token.as_bytes()).as_ref() {
            write!(line, "{byte:02x}").unwrap();
        }
        line + rest
    }

    /// A file, its tokens, and a clock that lets them read it at each step.
    struct TokenFile {
        folder: TempDir,
        tokens: StaticTokens,
        now: Instant,
    }

    impl TokenFile {
        fn new(lines: &[String]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let now = Instant::now();
            write(&folder.path().join("tokens"), lines);
            let tokens = StaticTokens::open(&folder.path().join("tokens"), now).unwrap();
            Self { folder, tokens, now }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("tokens")
        }

        /// Which of the tokens `a` to `e` are valid after the next read.
        fn valid(&mut self) -> String {
            self.now += CHECK_INTERVAL;
            let is_valid = |token: &char| self.tokens.caller(&token.to_string(), self.now).is_some();
            ('a'..='e').filter(is_valid).collect()
        }
    }

    /// Whatever umask the tests have.
    fn write(file: &Path, lines: &[String]) {
        fs::write(file, lines.join("\n")).unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    }

    fn all(tokens: &str) -> Vec<String> {
        let entry = |token: char| line(&token.to_string(), &format!(",reader-{token},all"));
        tokens.chars().map(entry).collect()
    }

    #[test]
    fn tokens_are_found_by_their_hash() {
        let text = [
            "# tokens of tenants".to_owned(),
            String::new(),
            line("secret-a", ",reader-a,namespace:team-a,cluster:blue"),
            line("secret-b", " , reader-b , admin "),
        ];
        let TokenFile { tokens, now, .. } = &TokenFile::new(&text);
        let (caller, grant) = tokens.caller("secret-b", *now).unwrap();
        assert_eq!((caller.name.as_str(), grant), ("reader-b", Grant::ADMIN));
        assert!(!tokens.caller("secret-a", *now).unwrap().1.scope.is_all());
        for other in ["", "secret", "secret-A", &line("secret-a", "")] {
            assert_eq!(tokens.caller(other, *now), None, "{other}");
        }
    }

    #[test]
    fn a_change_applies_and_without_a_file_no_token_is_valid() {
        let mut file = TokenFile::new(&all("ab"));
        write(&file.path(), &all("bc"));
        assert!(file.tokens.caller("a", file.now).is_some(), "not read again yet");
        assert_eq!(file.valid(), "bc");
        fs::remove_file(file.path()).unwrap();
        assert_eq!(file.valid(), "");
        write(&file.path(), &all("c"));
        assert_eq!(file.valid(), "c");
        // Neither a regular file nor text.
        fs::remove_file(file.path()).unwrap();
        make_fifo(&file.path());
        assert_eq!(file.valid(), "");
        fs::remove_file(file.path()).unwrap();
        fs::write(file.path(), b"\xff").unwrap();
        assert_eq!(file.valid(), "");
        // As a mounted Secret has it.
        fs::remove_file(file.path()).unwrap();
        let target = file.folder.path().join("..data");
        write(&target, &all("d"));
        std::os::unix::fs::symlink(target, file.path()).unwrap();
        assert_eq!(file.valid(), "d");
    }

    #[test]
    fn in_a_broken_file_only_unchanged_tokens_stay_valid() {
        let mut file = TokenFile::new(&all("abcd"));
        // Removed, unchanged, with other rights, broken, new.
        let mut lines = all("b");
        lines.push(line("c", ",reader-c,namespace:team-c"));
        lines.push(line("d", ",reader-d,everything"));
        lines.extend(all("e"));
        write(&file.path(), &lines);
        assert_eq!(file.valid(), "b");
        // One that was removed does not return with another broken file, but with a whole one.
        let mut lines = all("abcde");
        lines.push("x".to_owned());
        write(&file.path(), &lines);
        assert_eq!(file.valid(), "b");
        write(&file.path(), &all("ab"));
        assert_eq!(file.valid(), "ab");
        // A second line of the same token makes the file a broken one.
        for second in [",reader-a,namespace:team-a", ",other,all"] {
            write(&file.path(), &all("ab"));
            assert_eq!(file.valid(), "ab");
            for twice in [
                [all("ab"), vec![line("a", second)]],
                [vec![line("a", second)], all("ab")],
            ] {
                write(&file.path(), &twice.concat());
                assert_eq!(file.valid(), "b", "{second}");
            }
        }
        write(&file.path(), &all("ab"));
        assert_eq!(file.valid(), "ab");
        write(&file.path(), &all("aba"));
        assert_eq!(file.valid(), "ab", "twice the same");
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let mut file = TokenFile::new(&all("ab"));
        for (mode, valid) in [
            (0o664, ""),
            (0o640, "ab"),
            (0o602, ""),
            (0o444, "ab"),
            (0o620, ""),
        ] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(file.valid(), valid, "{mode:o}");
        }
        let error = StaticTokens::open(&file.path(), file.now)
            .unwrap_err()
            .to_string();
        let command = format!("chmod go-w {}", file.path().display());
        assert!(error.contains("mode 0620") && error.contains(&command), "{error}");
    }

    #[test]
    fn wrong_lines_are_named() {
        let good = line("a", ",a,all");
        for (text, number, part) in [
            ("x".to_owned(), 1, "not `sha256:"),
            (format!("\n{},a", line("a", "")), 2, "not `sha256:"),
            (line("a", ",,all"), 1, "not `sha256:"),
            (good.replace("sha256", "md5"), 1, "not `sha256:"),
            (good.replacen("sha256:", "sha256:+", 1), 1, "not `sha256:"),
            (line("a", ",a,everything"), 1, "\"everything\" is not a scope"),
            (format!("{good}\n{good}"), 2, "line 1 occurs again"),
        ] {
            let error = parse(Path::new("tokens"), &text).unwrap_err().to_string();
            let place = format!("tokens:{number}: ");
            assert!(
                error.starts_with(&place) && error.contains(part),
                "{text}: {error}"
            );
        }
        let many: Vec<String> = (0..=MAX_TOKENS)
            .map(|number| line(&number.to_string(), ",a,all"))
            .collect();
        let error = parse(Path::new("tokens"), &many.join("\n")).unwrap_err();
        let TokenFileError::Line { problem, .. } = error else {
            panic!("{error}");
        };
        assert!(matches!(problem, TokenLineError::TooMany));
        let error = StaticTokens::open(Path::new("/nowhere/tokens"), Instant::now()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/tokens"));
    }
}
