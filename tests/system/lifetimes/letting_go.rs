//! What is let go.
