//! Snappy in pieces: a message is compressed while it is written, so that memory holds it
//! compressed only.
//!
//! A Snappy block is the length of the message and a sequence of elements. Encoders compress each
//! 64 KiB of a message by themselves, so the elements of consecutive pieces form one block. Source:
//! <https://github.com/google/snappy/blob/main/format_description.txt>

use std::cell::RefCell;

use crate::wire::write_varint;

/// Maximum number of bytes that an encoder compresses by themselves.
const PIECE_BYTES: usize = 64 << 10;

struct Packer {
    encoder: snap::raw::Encoder,
    /// One compressed piece.
    packed: Vec<u8>,
}

thread_local! {
    /// The encoder and its result are kept: they are larger than most pieces.
    static PACKER: RefCell<Packer> = RefCell::new(Packer {
        encoder: snap::raw::Encoder::new(),
        packed: Vec::new(),
    });
}

/// A part of a message, compressed while it is written.
#[derive(Debug, Default)]
pub(crate) struct PieceWriter {
    /// Elements of the complete pieces.
    elements: Vec<u8>,
    /// The piece that is not complete.
    open: Vec<u8>,
    /// Length of the complete pieces, uncompressed.
    packed_bytes: usize,
}

impl PieceWriter {
    /// Appends what `write` appends to the vector.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.open);
        while self.open.len() >= PIECE_BYTES {
            append_elements(&self.open[..PIECE_BYTES], &mut self.elements);
            self.open.drain(..PIECE_BYTES);
            self.packed_bytes += PIECE_BYTES;
        }
    }

    /// Length so far, uncompressed.
    pub(crate) fn len(&self) -> usize {
        self.packed_bytes + self.open.len()
    }

    /// The block of the message that begins with `beginning` and goes on with what was written.
    /// Empties the writer.
    pub(crate) fn finish(&mut self, beginning: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.elements.len() + beginning.len() / 2 + self.open.len() / 2);
        write_varint(&mut block, (beginning.len() + self.len()) as u64);
        for piece in beginning.chunks(PIECE_BYTES) {
            append_elements(piece, &mut block);
        }
        block.extend_from_slice(&self.elements);
        append_elements(&self.open, &mut block);
        block.shrink_to_fit();
        self.elements.clear();
        self.open.clear();
        self.packed_bytes = 0;
        block
    }
}

/// Compresses a piece and appends it without its length.
fn append_elements(piece: &[u8], out: &mut Vec<u8>) {
    if piece.is_empty() {
        return;
    }
    PACKER.with_borrow_mut(|Packer { encoder, packed }| {
        packed.resize(snap::raw::max_compress_len(PIECE_BYTES), 0);
        // The encoder fails only if the result has no room.
        let length = encoder.compress(piece, packed).unwrap_or_default();
        // The length of the piece, whose last byte is the first one below 0x80.
        let head = packed.iter().position(|byte| *byte < 0x80).unwrap_or_default() + 1;
        out.extend_from_slice(packed.get(head..length).unwrap_or_default());
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compression, decompress};

    #[test]
    fn pieces_form_one_block() {
        // Numbers as text: compressible.
        let text: Vec<u8> = (0..60_000).flat_map(|n| format!("{n} ").into_bytes()).collect();
        let lengths = [0, 1, 100, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 200_000];
        let mut writer = PieceWriter::default();
        for beginning in lengths {
            for rest in lengths {
                for step in [1000, PIECE_BYTES * 2] {
                    for part in text[..rest].chunks(step) {
                        writer.write(|out| out.extend_from_slice(part));
                    }
                    assert_eq!(writer.len(), rest);
                    let block = writer.finish(&text[100..100 + beginning]);
                    let message = decompress(Compression::Snappy, &block, 1 << 20).unwrap();
                    assert!(message == [&text[100..100 + beginning], &text[..rest]].concat());
                    assert_eq!(writer.len(), 0);
                    let whole = crate::compress(Compression::Snappy, &message);
                    assert!(block.len() <= whole.len() + whole.len() / 20 + 64);
                }
            }
        }
    }
}
