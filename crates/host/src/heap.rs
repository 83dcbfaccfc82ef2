//! [`release_free_memory`]: freed memory goes back to the kernel.

/// Gives the kernel back whatever whole pages of this process's heap are free. The C library keeps them
/// otherwise: a daemon would hold for ever what its largest run needed. Takes a few milliseconds, while other
/// threads wait for memory.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    gnu::malloc_trim(0);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod gnu {
    // The only foreign function that the workspace declares itself (`xtask tidy`): no library has a safe call
    // for it. It may be called at any time from any thread (malloc_trim(3): MT-Safe, no precondition).
    #[allow(unsafe_code)]
    unsafe extern "C" {
        pub(super) safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
}
