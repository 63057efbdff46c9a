//! Engines run plans.
