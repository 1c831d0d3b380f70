//! Structs of integers, which are their bytes.

use std::mem::MaybeUninit;

/// Types that may be read from any bytes.
///
/// # Safety
/// Every bit pattern must be valid, and there must be no implicit padding.
pub(crate) unsafe trait Plain: Copy {
    /// Reads one from the start of `bytes`, if it is long enough.
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        let mut value = MaybeUninit::<Self>::uninit();
        // SAFETY: enough bytes are there, and any bit pattern is a valid value (Plain).
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                value.as_mut_ptr().cast(),
                size_of::<Self>(),
            );
            Some(value.assume_init())
        }
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: plain integers without implicit padding (Plain): all bytes are initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// Says of structs that bindgen has made that they are [`Plain`]: all their padding is a field, or `tests/bindings.rs` fails.
macro_rules! plain {
    ($($type:ident),*) => {$(
        // SAFETY: integers only, and all padding is a field.
        unsafe impl $crate::plain::Plain for $type {}
    )*};
}
pub(crate) use plain;
