//! Tests of the writer, against answers that are written down.

mod absences;
mod answers;
mod events;
mod scripted;
mod writes;
