//! A ClientHello, byte by byte: the TLS library of the tests is built without TLS 1.2.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

/// Maximum wait for a server; it only bounds a failure.
const DEADLINE: Duration = Duration::from_mins(2);

/// Extensions that a server of TLS 1.2 or 1.3 requires of a client.
const EXTENSIONS: [&[u8]; 5] = [
    // supported_groups: x25519 and P-256.
    &[0, 10, 0, 6, 0, 4, 0, 29, 0, 23],
    // ec_point_formats: uncompressed.
    &[0, 11, 0, 2, 1, 0],
    // signature_algorithms: ECDSA and RSA, each with SHA-256.
    &[0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1],
    // extended_master_secret.
    &[0, 23, 0, 0],
    // key_share: none yet.
    &[0, 51, 0, 2, 0, 0],
];

/// The extension `supported_versions` with TLS 1.3. A client without it offers at most TLS 1.2.
const ONLY_TLS_1_3: [u8; 7] = [0, 43, 0, 3, 2, 3, 4];

/// A record with the fatal alert `protocol_version` (RFC 8446, 6.2), as [`answer_to`] returns it.
const PROTOCOL_VERSION: [u8; 3] = [21, 2, 70];

/// Fails unless the server at the other end refuses a client that offers at most TLS 1.2, because
/// of the version: it accepts the same ClientHello with TLS 1.3.
pub fn refuses_tls_1_2(connect: impl Fn() -> io::Result<TcpStream>) -> Result<()> {
    let answer = answer_to(connect()?, &[])?;
    ensure!(answer == PROTOCOL_VERSION, "TLS 1.2 was not refused: {answer:?}");
    // A ServerHello, here one that requests a key share (RFC 8446, 4.1.4).
    let answer = answer_to(connect()?, &ONLY_TLS_1_3)?;
    ensure!(answer.starts_with(&[22, 2]), "TLS 1.3 was refused: {answer:?}");
    Ok(())
}

/// Type and content of the first record that a server sends.
fn answer_to(mut stream: TcpStream, versions: &[u8]) -> Result<Vec<u8>> {
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(&client_hello(versions)?)?;
    let mut head = [0; 5];
    stream
        .read_exact(&mut head)
        .context("no answer to a ClientHello")?;
    let [kind, _, _, high, low] = head;
    let mut record = vec![0; usize::from(u16::from_be_bytes([high, low]))];
    stream.read_exact(&mut record)?;
    record.insert(0, kind);
    Ok(record)
}

/// A record with a ClientHello (RFC 8446, 4.1.2) that has this extension, too.
fn client_hello(versions: &[u8]) -> Result<Vec<u8>> {
    let mut extensions: Vec<u8> = EXTENSIONS.concat();
    extensions.extend_from_slice(versions);
    // Version 1.2, which TLS 1.3 repeats here; the random bytes; no session.
    let mut body: Vec<u8> = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.push(0);
    // A suite of TLS 1.3, and two of TLS 1.2, which have AES-128-GCM with ECDSA and RSA.
    body.extend_from_slice(&[0, 6, 0x13, 0x01, 0xc0, 0x2b, 0xc0, 0x2f]);
    // No compression.
    body.extend_from_slice(&[1, 0]);
    body.extend_from_slice(&with_length(&extensions)?);
    let mut message: Vec<u8> = vec![1, 0];
    message.extend_from_slice(&with_length(&body)?);
    let mut record: Vec<u8> = vec![22, 3, 1];
    record.extend_from_slice(&with_length(&message)?);
    Ok(record)
}

/// The bytes after their number.
fn with_length(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut all = u16::try_from(bytes.len())?.to_be_bytes().to_vec();
    all.extend_from_slice(bytes);
    Ok(all)
}
