//! Append-only log, atomic files, blob store, with injectable faults
