//! The ops on the CPU.

«% for name in second_modules | sort %»
pub mod «name»;
«% endfor %»
