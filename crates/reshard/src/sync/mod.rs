//! Threads that wait for each other.
