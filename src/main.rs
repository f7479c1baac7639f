//! The program: everything is in the library's `cli`.

/// A sink that lives long allocates and frees on many threads, and glibc's arenas keep more and more of that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    cutover::cli::main()
}
