//! Static bearer tokens from a file, of which only hashes are stored.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use subtle::{Choice, ConstantTimeEq as _};
use virtfleet_collector_core::access::{AuthMethod, Caller};

use super::grant::{Grant, GrantError};

/// Minimum interval between two checks whether the file has changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of tokens: each request is compared with all of them.
const MAX_TOKENS: usize = 4096;
/// Maximum length of a token's name.
const MAX_NAME_CHARS: usize = 253;
/// Prefix of a hash.
const HASH_PREFIX: &str = "sha256:";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("{}:{line}: {problem}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number.
        line: usize,
        /// What is wrong, and the correct form.
        problem: TokenLineError,
    },
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum TokenLineError {
    /// It has too few fields.
    #[error("not `sha256:<64 hexadecimal digits>,<name>,<scope>…`")]
    Form,
    /// A field is not a scope.
    #[error(transparent)]
    Scope(#[from] GrantError),
    /// A token occurs twice.
    #[error("the token of line {0} occurs again")]
    Twice(usize),
    /// There are more tokens than allowed.
    #[error("more than {MAX_TOKENS} tokens")]
    TooMany,
}

#[derive(Debug)]
struct StaticToken {
    hash: [u8; SHA256_OUTPUT_LEN],
    line: usize,
    name: String,
    grant: Grant,
}

/// Version of the file on the disk: time of the last change, size.
type FileVersion = Option<(SystemTime, u64)>;

#[derive(Debug)]
struct LoadedTokens {
    tokens: Arc<[StaticToken]>,
    version: FileVersion,
    checked: Instant,
}

/// The tokens of a file, read again when it changes.
#[derive(Debug)]
pub struct StaticTokens {
    file: PathBuf,
    loaded: Mutex<LoadedTokens>,
}

impl StaticTokens {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or a line is wrong.
    pub fn open(file: &Path, now: Instant) -> Result<Self, TokenFileError> {
        let version = version(file);
        Ok(Self {
            loaded: Mutex::new(LoadedTokens {
                tokens: read(file)?.into(),
                version,
                checked: now,
            }),
            file: file.to_owned(),
        })
    }

    /// Number of tokens.
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

    /// The tokens as of `now`. If a changed file cannot be used, the last valid tokens are kept,
    /// and the error is logged once per change.
    fn current(&self, now: Instant) -> Arc<[StaticToken]> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(loaded.checked) >= CHECK_INTERVAL {
            loaded.checked = now;
            let version = version(&self.file);
            if version != loaded.version {
                loaded.version = version;
                match read(&self.file) {
                    Ok(tokens) => {
                        tracing::info!(file = %self.file.display(), tokens = tokens.len(), "static tokens reloaded");
                        loaded.tokens = tokens.into();
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(
                            error,
                            "changed static tokens cannot be used; the last valid ones are kept"
                        );
                    }
                }
            }
        }
        Arc::clone(&loaded.tokens)
    }
}

fn version(file: &Path) -> FileVersion {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read(file: &Path) -> Result<Vec<StaticToken>, TokenFileError> {
    let failed = |source| TokenFileError::Read {
        file: file.to_owned(),
        source,
    };
    let mut text = String::new();
    let opened = fs::File::open(file).map_err(failed)?;
    opened
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::other(format!(
            "larger than {MAX_FILE_BYTES} bytes"
        ))));
    }
    parse(&text).map_err(|(line, problem)| TokenFileError::Line {
        file: file.to_owned(),
        line,
        problem,
    })
}

fn parse(text: &str) -> Result<Vec<StaticToken>, (usize, TokenLineError)> {
    let mut tokens: Vec<StaticToken> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (number, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = parse_line(line, number).map_err(|problem| (number, problem))?;
        if let Some(known) = tokens.iter().find(|known| known.hash == token.hash) {
            return Err((number, TokenLineError::Twice(known.line)));
        }
        if tokens.len() == MAX_TOKENS {
            return Err((number, TokenLineError::TooMany));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

fn parse_line(line: &str, number: usize) -> Result<StaticToken, TokenLineError> {
    let mut fields = line.split(',').map(str::trim);
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
        line: number,
        name: name.to_owned(),
        grant: Grant::parse(scopes)?,
    })
}

fn parse_hash(text: &str) -> Option<[u8; SHA256_OUTPUT_LEN]> {
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
    use std::fmt::Write as _;

    use super::*;

    fn line(token: &str, rest: &str) -> String {
        let mut line = HASH_PREFIX.to_owned();
        for byte in digest(&SHA256, token.as_bytes()).as_ref() {
            write!(line, "{byte:02x}").unwrap();
        }
        line + rest
    }

    #[test]
    fn tokens_are_found_by_their_hash() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let text = [
            "# tokens of tenants".to_owned(),
            String::new(),
            line("secret-a", ",reader-a,namespace:team-a,cluster:blue"),
            line("secret-b", " , reader-b , admin "),
        ];
        fs::write(&file, text.join("\n")).unwrap();
        let start = Instant::now();
        let tokens = StaticTokens::open(&file, start).unwrap();
        let (caller, grant) = tokens.caller("secret-b", start).unwrap();
        assert_eq!((caller.name.as_str(), grant), ("reader-b", Grant::ADMIN));
        assert!(!tokens.caller("secret-a", start).unwrap().1.scope.is_all());
        for other in ["", "secret", "secret-A", &line("secret-a", "")] {
            assert_eq!(tokens.caller(other, start), None, "{other}");
        }

        // A change applies, and a broken file does not.
        let later = |checks| start + CHECK_INTERVAL * checks;
        fs::write(&file, line("secret-c", ",reader-c,all")).unwrap();
        assert!(tokens.caller("secret-b", later(1)).is_none());
        assert!(tokens.caller("secret-c", later(1)).is_some());
        fs::write(&file, "sha256:00,x,all").unwrap();
        assert!(tokens.caller("secret-c", later(2)).is_some());
        fs::remove_file(&file).unwrap();
        assert!(tokens.caller("secret-c", later(3)).is_some());
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
            let (line, problem) = parse(&text).unwrap_err();
            assert_eq!(line, number, "{text}");
            assert!(problem.to_string().contains(part), "{text}: {problem}");
        }
        let many: Vec<String> = (0..=MAX_TOKENS)
            .map(|number| line(&number.to_string(), ",a,all"))
            .collect();
        assert!(matches!(
            parse(&many.join("\n")).unwrap_err().1,
            TokenLineError::TooMany
        ));
        let error = StaticTokens::open(Path::new("/nowhere/tokens"), Instant::now()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/tokens"));
    }
}
