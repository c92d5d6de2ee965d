#include "storage.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "libtorrent/disk_buffer_holder.hpp"
#include "libtorrent/file_storage.hpp"
#include "libtorrent/hasher.hpp"
#include "libtorrent/storage_defs.hpp"

namespace peer {
namespace {

struct storage final : lt::disk_interface, lt::buffer_allocator_interface
{
	storage(lt::io_context& ios, content const what, on_block written)
		: m_ios(ios), m_content(what), m_written(std::move(written)) {}

	lt::storage_holder new_torrent(lt::storage_params const& params
		, std::shared_ptr<void> const&) override
	{
		m_piece_bytes = params.files.piece_length();
		m_total_bytes = params.files.total_size();
		return lt::storage_holder(lt::storage_index_t(0), *this);
	}

	void async_read(lt::storage_index_t, lt::peer_request const& r
		, std::function<void(lt::disk_buffer_holder, lt::storage_error const&)> handler
		, lt::disk_job_flags_t) override
	{
		char* const buffer = new char[std::size_t(r.length)];
		m_content.fill(offset(r.piece) + r.start, buffer, r.length);
		post(m_ios, [this, buffer, length = r.length, handler = std::move(handler)]
			{ handler(lt::disk_buffer_holder(*this, buffer, length), lt::storage_error()); });
	}

	bool async_write(lt::storage_index_t, lt::peer_request const& r
		, char const* const buf, std::shared_ptr<lt::disk_observer>
		, std::function<void(lt::storage_error const&)> handler
		, lt::disk_job_flags_t) override
	{
		std::vector<char> expected(std::size_t(r.length));
		m_content.fill(offset(r.piece) + r.start, expected.data(), r.length);
		if (std::memcmp(buf, expected.data(), expected.size()) != 0)
		{
			std::fprintf(stderr, "piece %d at %d is not the content\n", int(r.piece), r.start);
			std::exit(3);
		}
		m_written(r.length);
		post(m_ios, [handler = std::move(handler)] { handler(lt::storage_error()); });
		return false;
	}

	void async_hash(lt::storage_index_t, lt::piece_index_t const piece
		, lt::span<lt::sha256_hash>, lt::disk_job_flags_t
		, std::function<void(lt::piece_index_t, lt::sha1_hash const&
			, lt::storage_error const&)> handler) override
	{
		// Every block was compared as it came.
		auto const bytes = std::min<std::int64_t>(m_piece_bytes, m_total_bytes - offset(piece));
		std::vector<char> whole(static_cast<std::size_t>(bytes));
		m_content.fill(offset(piece), whole.data(), int(bytes));
		lt::sha1_hash const hash = lt::hasher(whole).final();
		post(m_ios, [piece, hash, handler = std::move(handler)]
			{ handler(piece, hash, lt::storage_error()); });
	}

	void async_hash2(lt::storage_index_t, lt::piece_index_t const piece, int
		, lt::disk_job_flags_t
		, std::function<void(lt::piece_index_t, lt::sha256_hash const&
			, lt::storage_error const&)> handler) override
	{
		// Only torrents of version 2 have such hashes.
		post(m_ios, [piece, handler = std::move(handler)]
			{ handler(piece, lt::sha256_hash(), unsupported()); });
	}

	void async_move_storage(lt::storage_index_t, std::string path, lt::move_flags_t
		, std::function<void(lt::status_t, std::string const&
			, lt::storage_error const&)> handler) override
	{
		post(m_ios, [path = std::move(path), handler = std::move(handler)]
			{ handler(lt::status_t::fatal_disk_error, path, unsupported()); });
	}

	void async_release_files(lt::storage_index_t, std::function<void()> handler) override
	{
		if (handler) post(m_ios, std::move(handler));
	}

	void async_check_files(lt::storage_index_t, lt::add_torrent_params const*
		, lt::aux::vector<std::string, lt::file_index_t>
		, std::function<void(lt::status_t, lt::storage_error const&)> handler) override
	{
		post(m_ios, [handler = std::move(handler)]
			{ handler(lt::status_t::no_error, lt::storage_error()); });
	}

	void async_stop_torrent(lt::storage_index_t, std::function<void()> handler) override
	{
		if (handler) post(m_ios, std::move(handler));
	}

	void async_rename_file(lt::storage_index_t, lt::file_index_t const index
		, std::string name
		, std::function<void(std::string const&, lt::file_index_t
			, lt::storage_error const&)> handler) override
	{
		post(m_ios, [index, name = std::move(name), handler = std::move(handler)]
			{ handler(name, index, lt::storage_error()); });
	}

	void async_delete_files(lt::storage_index_t, lt::remove_flags_t
		, std::function<void(lt::storage_error const&)> handler) override
	{
		post(m_ios, [handler = std::move(handler)] { handler(lt::storage_error()); });
	}

	void async_set_file_priority(lt::storage_index_t
		, lt::aux::vector<lt::download_priority_t, lt::file_index_t> priorities
		, std::function<void(lt::storage_error const&
			, lt::aux::vector<lt::download_priority_t, lt::file_index_t>)> handler) override
	{
		post(m_ios, [priorities = std::move(priorities), handler = std::move(handler)]
			{ handler(lt::storage_error(), priorities); });
	}

	void async_clear_piece(lt::storage_index_t, lt::piece_index_t const piece
		, std::function<void(lt::piece_index_t)> handler) override
	{
		post(m_ios, [piece, handler = std::move(handler)] { handler(piece); });
	}

	void free_disk_buffer(char* const buffer) override { delete[] buffer; }

	void remove_torrent(lt::storage_index_t) override {}
	void abort(bool) override {}
	void submit_jobs() override {}
	void settings_updated() override {}
	void update_stats_counters(lt::counters&) const override {}
	std::vector<lt::open_file_state> get_status(lt::storage_index_t) const override { return {}; }

private:
	std::int64_t offset(lt::piece_index_t const piece) const
	{
		return std::int64_t(static_cast<int>(piece)) * m_piece_bytes;
	}

	static lt::storage_error unsupported()
	{
		lt::storage_error error;
		error.ec = boost::system::errc::make_error_code(boost::system::errc::not_supported);
		return error;
	}

	lt::io_context& m_ios;
	content m_content;
	on_block m_written;

	// Of the one torrent that there is.
	std::int64_t m_piece_bytes = 0;
	std::int64_t m_total_bytes = 0;
};

} // namespace

lt::disk_io_constructor_type make_storage(content const what, on_block written)
{
	return [what, written = std::move(written)](lt::io_context& ios
		, lt::settings_interface const&, lt::counters&) -> std::unique_ptr<lt::disk_interface>
	{
		return std::make_unique<storage>(ios, what, written);
	};
}

} // namespace peer
