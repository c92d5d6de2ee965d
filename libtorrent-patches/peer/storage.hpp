// Storage without a disk: what is read is generated, what is written is
// compared with what it has to be.

#pragma once

#include "content.hpp"

#include <functional>
#include <memory>

#include "libtorrent/disk_interface.hpp"
#include "libtorrent/io_context.hpp"
#include "libtorrent/session_params.hpp"

namespace peer {

// Called with the length of each block that was written and is right.
using on_block = std::function<void(int)>;

// All calls are answered by way of the io_context, in no time: neither a disk
// nor its threads take part in an experiment. A block that differs from the
// content ends the program.
lt::disk_io_constructor_type make_storage(content what, on_block written);

} // namespace peer
