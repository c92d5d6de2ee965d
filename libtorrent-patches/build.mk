# Compiles the part of libtorrent that a peer of an experiment needs, as one static library, and the
# peer. Run in libtorrent's tree:
#
#   make -f build.mk libtorrent-peer
#
# libtorrent's own build takes CMake or b2 for the same; this one keeps paths out of the result, so
# that a copied tree compiles only what a patch has touched. What is switched off has no part in a
# transfer between two peers that know each other.

CXX = g++
PEER = peer
# The library uses deprecated parts of its own.
CXXFLAGS = -std=c++17 -O1 -Wno-deprecated-declarations
FEATURES = -DTORRENT_DISABLE_DHT -DTORRENT_DISABLE_ENCRYPTION -DTORRENT_DISABLE_EXTENSIONS \
	-DTORRENT_DISABLE_LOGGING -DTORRENT_DISABLE_STREAMING -DTORRENT_DISABLE_MUTABLE_TORRENTS \
	-DTORRENT_NO_DEPRECATE -DTORRENT_USE_I2P=0
# std::random_device asks the processor, and no simulator can repeat what that says. Without it the
# library takes getrandom(2).
RANDOM = -DTORRENT_BROKEN_RANDOM_DEVICE=1
DEFINES = $(FEATURES) $(RANDOM) -DBOOST_ASIO_ENABLE_CANCELIO -DBOOST_ASIO_NO_DEPRECATED \
	-DBOOST_ASIO_HAS_STD_CHRONO -DBOOST_EXCEPTION_DISABLE -D_FILE_OFFSET_BITS=64
INCLUDES = -Iinclude -Ideps/try_signal

# Extensions and the distributed hash table.
UNNEEDED = src/ut_%.cpp src/smart_ban.cpp src/pe_crypto.cpp src/i2p_stream.cpp
SOURCES := $(filter-out $(UNNEEDED),$(sort $(wildcard src/*.cpp))) \
	deps/try_signal/try_signal.cpp deps/try_signal/signal_error_code.cpp
OBJECTS := $(SOURCES:%.cpp=objects/%.o)
PEER_OBJECTS := $(patsubst $(PEER)/%.cpp,objects/peer/%.o,$(wildcard $(PEER)/*.cpp))
COMPILE = $(CXX) $(CXXFLAGS) $(DEFINES) $(INCLUDES) $(PRECOMPILED) -MMD -MP -c -o $@ $<

# ccache has to see which precompiled header a file takes.
CXXFLAGS += -fpch-preprocess

# Compiled once: asio and the library's own headers are two thirds of the work on each file.
COMMON = libtorrent/config.hpp boost/asio.hpp libtorrent/session.hpp libtorrent/torrent.hpp \
	libtorrent/alert_types.hpp libtorrent/aux_/session_impl.hpp libtorrent/bt_peer_connection.hpp

PRECOMPILED = -include common.hpp

# These ask the system with stat(), a name that the library has taken once all its headers are read.
objects/src/copy_file.o objects/src/drive_info.o: PRECOMPILED =

library: libtorrent.a

libtorrent-peer: $(PEER_OBJECTS) libtorrent.a
	$(CXX) $(CXXFLAGS) -o $@ $^ -pthread

libtorrent.a: $(OBJECTS)
	rm -f $@
	ar rcD $@ $^

common.hpp:
	printf '#include <%s>\n' $(COMMON) > $@

common.hpp.gch: common.hpp
	$(CXX) $(CXXFLAGS) $(DEFINES) $(INCLUDES) -x c++-header -MMD -MP -MF common.d -o $@ $<

objects/peer/%.o: $(PEER)/%.cpp common.hpp.gch
	@mkdir -p $(@D)
	$(COMPILE) -Wall -Wextra

objects/%.o: %.cpp common.hpp.gch
	@mkdir -p $(@D)
	$(COMPILE)

-include common.d $(OBJECTS:.o=.d) $(PEER_OBJECTS:.o=.d)
.PHONY: library
