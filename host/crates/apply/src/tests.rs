//! Tests of the writer, against answers that are written down.

mod answers;
mod events;
mod scripted;
mod writes;
