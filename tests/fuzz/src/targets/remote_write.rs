//! Messages of remote write, and their compression.

use virtfleet_remote_write::{Compression, compress, decode_v1, decode_v2, decompress, to_v1};

/// Largest message, in bytes: as large as the fuzzer's inputs may become.
const MAX_UNPACKED: usize = 32 << 10;

/// The first byte chooses the compression of the rest: none, Snappy, or zstd. What unpacks packs
/// again, and what becomes a message of 1.0 is one, with all samples of that of 2.0.
pub(super) fn messages(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let compression = match choice % 3 {
        0 => return message(rest),
        1 => Compression::Snappy,
        _ => Compression::Zstd,
    };
    let Ok(unpacked) = decompress(compression, rest, MAX_UNPACKED) else {
        return;
    };
    assert!(unpacked.len() <= MAX_UNPACKED);
    let again = compress(compression, &unpacked);
    assert_eq!(
        decompress(compression, &again, MAX_UNPACKED).as_ref(),
        Ok(&unpacked)
    );
    message(&unpacked);
}

fn message(bytes: &[u8]) {
    drop(decode_v1(bytes));
    let (request, older) = (decode_v2(bytes), to_v1(bytes));
    let Ok(older) = older else {
        return;
    };
    let older = decode_v1(&older).expect("a message of ours can be read");
    assert!(older.timeseries.iter().all(|series| !series.samples.is_empty()));
    if let Ok(request) = request {
        let newer: Vec<(u64, i64)> = request
            .timeseries
            .iter()
            .flat_map(|series| &series.samples)
            .map(|sample| (sample.value.to_bits(), sample.timestamp))
            .collect();
        let older: Vec<(u64, i64)> = older
            .timeseries
            .iter()
            .flat_map(|series| &series.samples)
            .map(|sample| (sample.value.to_bits(), sample.timestamp))
            .collect();
        assert_eq!(newer, older, "the same samples in the same order");
    }
}
