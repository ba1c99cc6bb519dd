//! Checks that a program is static: an image from scratch has no dynamic loader and no library.

use anyhow::{Context as _, Result, ensure};
use object::{
    Endianness,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};

/// Fails unless `program` is a static program.
pub fn require_static(name: &str, program: &[u8]) -> Result<()> {
    let has_loader =
        names_loader(program).with_context(|| format!("{name} is not an ELF program of 64 bits"))?;
    ensure!(
        !has_loader,
        "{name} is not static: it needs a dynamic loader, which the image does not have; build it with \
         RUSTFLAGS=\"-C target-feature=+crt-static\" and an explicit --target"
    );
    Ok(())
}

/// Whether an ELF file of 64 bits names a dynamic loader (`elf(5)`).
fn names_loader(program: &[u8]) -> object::read::Result<bool> {
    let header = FileHeader64::<Endianness>::parse(program)?;
    let endian = header.endian()?;
    let mut segments = header.program_headers(endian, program)?.iter();
    Ok(segments.any(|segment| segment.p_type(endian) == PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with segments of these types, and nothing else.
    fn program(segments: &[u32]) -> Vec<u8> {
        const HEADER_BYTES: u8 = 64;
        const SEGMENT_BYTES: u8 = 56;
        let mut program = vec![0; usize::from(HEADER_BYTES)];
        program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        program[32] = HEADER_BYTES;
        program[54] = SEGMENT_BYTES;
        program[56] = u8::try_from(segments.len()).unwrap();
        for segment in segments {
            let mut bytes = vec![0; usize::from(SEGMENT_BYTES)];
            bytes[..4].copy_from_slice(&segment.to_le_bytes());
            program.extend(bytes);
        }
        program
    }

    #[test]
    fn a_program_with_a_dynamic_loader_is_refused() {
        // PT_LOAD, PT_DYNAMIC (a static program may be position independent), PT_NOTE.
        require_static("x", &program(&[1, 2, 4])).unwrap();
        require_static("x", &program(&[])).unwrap();
        let dynamic = program(&[1, PT_INTERP, 2]);
        let error = require_static("virtfleetctl", &dynamic).unwrap_err().to_string();
        assert!(error.starts_with("virtfleetctl is not static"), "{error}");
        for other in [&b"#!/bin/sh\n"[..], b"", b"\x7fELF\x01\x01", &dynamic[..100]] {
            let error = require_static("virtfleetctl", other).unwrap_err().to_string();
            assert!(error.contains("not an ELF program of 64 bits"), "{error}");
        }
    }
}
