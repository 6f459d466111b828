//! Giving freed memory back to the system.

/// Lets the C library return the free memory that it holds. It keeps what a large piece of work
/// freed, in one pool per thread, and a process that lives for months would keep the sum of them.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: takes a number, and locks the pools that it touches.
        let _released = unsafe { malloc_trim(0) };
    }
}
