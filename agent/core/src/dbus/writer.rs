//! Serialises values, little-endian.

/// Appends values, each aligned from the start of the buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Returns the written bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
    /// Appends zeros up to a multiple of `to`.
    pub fn align(&mut self, to: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
        self
    }
    /// Appends a byte (`y`).
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }
    /// Appends a 32-bit number (`u`).
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.align(4).bytes.extend(value.to_le_bytes());
        self
    }
    /// Appends a 64-bit number (`t`).
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.align(8).bytes.extend(value.to_le_bytes());
        self
    }
    /// Appends a boolean (`b`).
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }
    /// Appends a string or an object path (`s`, `o`).
    pub fn string(&mut self, value: &str) -> &mut Self {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes.extend(value.as_bytes());
        self.byte(0)
    }
    /// Appends a signature (`g`).
    pub fn signature(&mut self, value: &str) -> &mut Self {
        self.byte(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.bytes.extend(value.as_bytes());
        self.byte(0)
    }
    /// Appends an array whose elements are aligned to `to` and written by `elements`.
    pub fn array(&mut self, to: usize, elements: impl FnOnce(&mut Self)) -> &mut Self {
        self.u32(0);
        let length_at = self.bytes.len() - 4;
        self.align(to);
        let start = self.bytes.len();
        elements(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        self
    }
}
