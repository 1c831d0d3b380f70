//! Reading numbers out of bytes.

/// Bytes that are read from the front. Nothing is read beyond the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, back) = self.0.split_at_checked(count)?;
        self.0 = back;
        Some(front)
    }

    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(drop)
    }

    /// A part with a reader of its own.
    pub fn part(&mut self, count: usize) -> Option<Self> {
        self.take(count).map(Self)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}
