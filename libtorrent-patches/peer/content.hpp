// The content of a torrent: a function of a seed, so that no peer reads or
// writes a file.

#pragma once

#include <cstdint>

namespace peer {

struct content
{
	std::uint64_t seed;

	// Byte i of the content is byte i % 8 (little-endian) of a mix of the seed
	// and i / 8 (the finalizer of SplitMix64, Steele et al. 2014).
	void fill(std::int64_t const offset, char* const out, int const length) const
	{
		std::uint64_t current = 0;
		for (int i = 0; i < length; ++i)
		{
			auto const at = std::uint64_t(offset + i);
			if (i == 0 || at % 8 == 0) current = word(at / 8);
			out[i] = char(current >> (8 * (at % 8)));
		}
	}

private:
	std::uint64_t word(std::uint64_t const index) const
	{
		std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		return z ^ (z >> 31);
	}
};

} // namespace peer
