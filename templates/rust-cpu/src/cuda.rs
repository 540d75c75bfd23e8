//! The ops on CUDA devices.

«% for name in (["driver", "launch", "module"] + second_modules) | sort %»
pub mod «name»;
«% endfor %»
