//! Truth: what our flows say of a capture against what tshark says of it.
//!
//! - [`tshark`] runs tshark and reads its dissection of every packet (PDML).
//! - [`reading`] makes flow levels of a dissection, by the rules of `docs/accounting.md` but with
//!   every field and every offset as tshark read it, and notes by name where those rules depart
//!   from tshark's own view.
//! - [`conversation`] sums both sides up to the same shape.
//! - [`expected`] lists the departures that are known, with their reasons; `docs/truth.md`
//!   explains them.
//! - [`replay`] runs `skua replay` and reads its records.
//! - [`table`] reads the tables of `tshark -z conv`.

pub mod check;
pub mod conversation;
pub mod expected;
pub mod reading;
pub mod replay;
pub mod table;
pub mod tshark;
