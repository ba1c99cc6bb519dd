//! SHA-256 digests of files.

use std::{
    fmt::{self, Write as _},
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use ring::digest::{Context, SHA256};

/// Incremental SHA-256.
#[derive(Clone)]
pub struct Sha256(Context);

impl Default for Sha256 {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sha256")
    }
}

impl Sha256 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// The first 16 hexadecimal digits of the digest of `bytes`: tells versions of a document
    /// apart.
    pub fn fingerprint(bytes: &[u8]) -> String {
        let mut digest = Self::default();
        digest.update(bytes);
        let mut digits = digest.hex();
        digits.truncate(16);
        digits
    }
    /// The digest of all bytes, in hexadecimal digits.
    pub fn hex(self) -> String {
        hex(&self.bytes())
    }
    /// The digest of all bytes.
    pub fn bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        bytes
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// SHA-256 of a file's content in hexadecimal digits.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::default();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        digest.update(&buffer[..count]);
    }
    Ok(digest.hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1.
    #[test]
    fn example_of_the_standard() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abc");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(
            sha256_file(&file).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
