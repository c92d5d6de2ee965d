// A BitTorrent peer for experiments: serves one torrent, or fetches it from
// one peer at a time, again and again, and writes down what its transport and
// its requests do. README.md has the arguments and the lines.

#include "content.hpp"
#include "storage.hpp"

#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <netdb.h>
#include <sys/time.h>

#include "libtorrent/add_torrent_params.hpp"
#include "libtorrent/alert_types.hpp"
#include "libtorrent/aux_/observer.hpp"
#include "libtorrent/bencode.hpp"
#include "libtorrent/create_torrent.hpp"
#include "libtorrent/hasher.hpp"
#include "libtorrent/session.hpp"
#include "libtorrent/session_params.hpp"
#include "libtorrent/settings_pack.hpp"
#include "libtorrent/torrent_info.hpp"
#include "libtorrent/version.hpp"

namespace peer {
namespace {

constexpr int log_format = 1;
constexpr auto reconnect_pause = std::chrono::seconds(1);
constexpr auto beat_interval = std::chrono::seconds(1);

std::int64_t now_us()
{
	timeval tv{};
	gettimeofday(&tv, nullptr);
	return std::int64_t(tv.tv_sec) * 1000000 + tv.tv_usec;
}

// Prints one line of the log: the time, then what is given.
[[gnu::format(printf, 1, 2)]] void say(char const* const format, ...)
{
	std::printf("%" PRId64 " ", now_us());
	va_list arguments;
	va_start(arguments, format);
	std::vprintf(format, arguments);
	va_end(arguments);
	std::putchar('\n');
}

struct usage_error : std::runtime_error
{
	using std::runtime_error::runtime_error;
};

// ---- Arguments

std::vector<std::string> split(std::string const& text)
{
	std::vector<std::string> parts;
	std::size_t from = 0;
	while (from <= text.size())
	{
		std::size_t const to = std::min(text.find(',', from), text.size());
		if (to > from) parts.push_back(text.substr(from, to - from));
		from = to + 1;
	}
	return parts;
}

std::int64_t number(std::string const& name, std::string const& text)
{
	std::size_t used = 0;
	std::int64_t value = -1;
	try { value = std::stoll(text, &used); }
	catch (std::exception const&) {}
	if (value < 0 || used != text.size())
		throw usage_error("--" + name + ": expected a whole number, got " + text);
	return value;
}

struct options
{
	bool seeds = false;
	bool utp = true;
	std::string listen;
	int port = 6881;
	std::int64_t size_bytes = 0;
	int piece_bytes = 256 * 1024;
	std::uint64_t content_seed = 1;
	std::int64_t sample_us = 5000;
	std::vector<std::string> from;
	std::string to;
	std::string socks;
	std::int64_t start_ms = 0;
	std::int64_t downloads = 1;
	std::vector<std::int64_t> pauses_ms;
	std::int64_t timeout_ms = 0;
	std::uint64_t draw_seed = 1;
};

options parse(int const argc, char* const argv[])
{
	if (argc < 2) throw usage_error("expected seed or fetch");
	options o;
	std::string const role = argv[1];
	if (role != "seed" && role != "fetch")
		throw usage_error("expected seed or fetch, got " + role);
	o.seeds = role == "seed";
	for (int i = 2; i < argc; i += 2)
	{
		std::string const key = argv[i];
		if (key.rfind("--", 0) != 0 || i + 1 == argc)
			throw usage_error("expected --name value, got " + key);
		std::string const name = key.substr(2);
		std::string const value = argv[i + 1];
		if (name == "transport")
		{
			if (value != "utp" && value != "tcp")
				throw usage_error("--transport: expected utp or tcp, got " + value);
			o.utp = value == "utp";
		}
		else if (name == "from") o.from = split(value);
		else if (name == "to") o.to = value;
		else if (name == "socks") o.socks = value;
		else if (name == "listen") o.listen = value;
		else if (name == "pause-ms")
		{
			for (auto const& one : split(value)) o.pauses_ms.push_back(number(name, one));
		}
		else if (name == "port") o.port = int(number(name, value));
		else if (name == "size") o.size_bytes = number(name, value);
		else if (name == "piece") o.piece_bytes = int(number(name, value));
		else if (name == "content-seed") o.content_seed = std::uint64_t(number(name, value));
		else if (name == "sample-us") o.sample_us = number(name, value);
		else if (name == "start-ms") o.start_ms = number(name, value);
		else if (name == "downloads") o.downloads = number(name, value);
		else if (name == "timeout-ms") o.timeout_ms = number(name, value);
		else if (name == "draw-seed") o.draw_seed = std::uint64_t(number(name, value));
		else throw usage_error("unknown argument " + key);
	}
	if (o.size_bytes == 0) throw usage_error("--size is missing");
	if (o.piece_bytes < 16384 || (o.piece_bytes & (o.piece_bytes - 1)) != 0)
		throw usage_error("--piece: expected a power of two of at least 16384");
	if (o.seeds && !o.from.empty()) throw usage_error("--from: a seed fetches nothing");
	if (!o.seeds && !o.to.empty()) throw usage_error("--to: only a seed serves");
	if (!o.seeds && o.from.empty() && o.downloads != 1)
		throw usage_error("--downloads goes with --from");
	if (!o.socks.empty() && o.utp) throw usage_error("--socks goes with --transport tcp");
	if (!o.socks.empty() && !o.listen.empty())
		throw usage_error("--listen: who goes through a proxy listens nowhere");
	return o;
}

std::pair<std::string, int> host_and_port(std::string const& text)
{
	std::size_t const colon = text.rfind(':');
	if (colon == std::string::npos || colon == 0)
		throw usage_error("expected HOST:PORT, got " + text);
	return {text.substr(0, colon), int(number("from", text.substr(colon + 1)))};
}

lt::address_v4 address_of(std::string const& host)
{
	addrinfo hints{};
	hints.ai_family = AF_INET;
	hints.ai_socktype = SOCK_STREAM;
	addrinfo* found = nullptr;
	if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0 || found == nullptr)
		throw std::runtime_error("no address of " + host);
	auto const* const in = reinterpret_cast<sockaddr_in const*>(found->ai_addr);
	lt::address_v4 const address(ntohl(in->sin_addr.s_addr));
	freeaddrinfo(found);
	return address;
}

lt::tcp::endpoint resolve(std::string const& text)
{
	auto const [host, port] = host_and_port(text);
	return {address_of(host), std::uint16_t(port)};
}

// ---- Torrent and settings

std::shared_ptr<lt::torrent_info> make_torrent(options const& o)
{
	lt::file_storage files;
	files.add_file("content", o.size_bytes);
	lt::create_torrent torrent(files, o.piece_bytes, lt::create_torrent::v1_only);
	content const what{o.content_seed};
	std::vector<char> piece(std::size_t(o.piece_bytes));
	for (auto const i : torrent.files().piece_range())
	{
		int const bytes = torrent.piece_size(i);
		what.fill(std::int64_t(int(i)) * o.piece_bytes, piece.data(), bytes);
		torrent.set_hash(i, lt::hasher(lt::span<char const>(piece.data(), bytes)).final());
	}
	std::vector<char> encoded;
	lt::bencode(std::back_inserter(encoded), torrent.generate());
	return std::make_shared<lt::torrent_info>(encoded, lt::from_span);
}

std::string listens_at(options const& o)
{
	// For "all addresses" libtorrent asks the kernel for its interfaces and
	// routes, which not every simulator can tell.
	std::string const host = o.listen.empty() ? "0.0.0.0" : address_of(o.listen).to_string();
	return host + ":" + std::to_string(o.port);
}

lt::settings_pack make_settings(options const& o)
{
	using sp = lt::settings_pack;
	sp settings;
	for (int const off : {int(sp::enable_dht), int(sp::enable_lsd), int(sp::enable_upnp)
		, int(sp::enable_natpmp), int(sp::enable_ip_notifier)})
	{
		settings.set_bool(off, false);
	}
	settings.set_bool(sp::enable_outgoing_utp, o.utp);
	settings.set_bool(sp::enable_incoming_utp, o.utp);
	settings.set_bool(sp::enable_outgoing_tcp, !o.utp);
	settings.set_bool(sp::enable_incoming_tcp, !o.utp);
	settings.set_bool(sp::allow_multiple_connections_per_ip, true);
	// A seed of an experiment turns nobody away.
	settings.set_int(sp::unchoke_slots_limit, -1);
	settings.set_int(sp::connections_limit, 10000);
	// This program decides when to connect again.
	settings.set_int(sp::min_reconnect_time, 1);
	settings.set_int(sp::max_failcount, 1000000);
	settings.set_int(sp::alert_mask, int(static_cast<std::uint32_t>(lt::alert_category::error
		| lt::alert_category::connect | lt::alert_category::status)));
	// Whoever goes through a proxy listens nowhere.
	settings.set_str(sp::listen_interfaces, o.socks.empty() ? listens_at(o) : "");
	if (!o.socks.empty())
	{
		auto const [host, socks_port] = host_and_port(o.socks);
		settings.set_int(sp::proxy_type, sp::socks5);
		settings.set_str(sp::proxy_hostname, host);
		settings.set_int(sp::proxy_port, socks_port);
		settings.set_bool(sp::proxy_peer_connections, true);
	}
	return settings;
}

// ---- The peer

struct peer final : lt::aux::transfer_observer
{
	explicit peer(options o)
		: m_options(std::move(o))
		, m_torrent(make_torrent(m_options))
		, m_beat(m_ios), m_next(m_ios), m_reconnect(m_ios), m_timeout(m_ios)
		, m_draws{m_options.draw_seed}
	{
		for (auto const& one : m_options.from) m_others.push_back(resolve(one));
		if (!m_options.to.empty()) m_others.push_back(resolve(m_options.to));
	}

	void run()
	{
		lt::aux::observer = this;
		lt::session_params parameters;
		parameters.settings = make_settings(m_options);
		parameters.disk_io_constructor = make_storage({m_options.content_seed}
			, [this](int const bytes) { on_block(bytes); });
		// The session runs in this thread: there is no other.
		lt::session session(std::move(parameters), m_ios);
		m_session = &session;
		session.set_alert_notify([this] { post(m_ios, [this] { drain_alerts(); }); });
		// A seed has its torrent from the start; --start-ms says when it connects.
		if (m_options.seeds) add_torrent();
		m_next.expires_after(std::chrono::milliseconds(m_options.start_ms));
		m_next.async_wait([this](lt::error_code const& error) { if (!error) start(); });
		beat();
		m_ios.run();
	}

	// lt::aux::transfer_observer

	void on_utp(lt::aux::utp_state const& s) override
	{
		auto& socket = m_sockets[s.socket];
		if (socket.number == 0) socket.number = int(m_sockets.size());
		socket.most_in_flight = std::max(socket.most_in_flight, s.in_flight);
		std::int64_t const now = now_us();
		if (s.event == lt::aux::utp_event::progress && now - socket.said_us < m_options.sample_us)
			return;
		static char const* const events[] = {"progress", "end-by-delay", "end-by-loss"
			, "end-by-threshold", "begin-by-timeout"};
		say("utp %d %s %" PRId64 " %d %u %d %d %d", socket.number, events[int(s.event)]
			, s.window, socket.most_in_flight, s.advertised, s.waiting, s.delay
			, int(s.slow_start));
		socket.said_us = now;
		socket.most_in_flight = 0;
	}

	void on_requests(lt::aux::request_state const& s) override
	{
		if (m_options.seeds) return;
		std::int64_t const now = now_us();
		bool const changed = s.slow_start != m_requests_slow_start;
		if (!changed && now - m_requests_said_us < m_options.sample_us) return;
		say("requests %d %d %d %d", s.target, s.outstanding, s.download_rate, int(s.slow_start));
		m_requests_said_us = now;
		m_requests_slow_start = s.slow_start;
	}

private:
	void on_block(int const bytes)
	{
		if (m_of_download == 0) say("download %" PRId64 " first", m_number);
		m_of_download += bytes;
		m_received += bytes;
		std::int64_t const now = now_us();
		if (now - m_received_said_us < m_options.sample_us) return;
		say("received %" PRId64, m_received);
		m_received_said_us = now;
	}

	void add_torrent()
	{
		lt::add_torrent_params parameters;
		parameters.ti = m_torrent;
		parameters.save_path = ".";
		parameters.flags &= ~(lt::torrent_flags::auto_managed | lt::torrent_flags::paused);
		parameters.flags |= lt::torrent_flags::disable_dht | lt::torrent_flags::disable_lsd
			| lt::torrent_flags::disable_pex;
		if (m_options.seeds)
		{
			parameters.have_pieces.resize(m_torrent->num_pieces(), true);
			parameters.flags |= lt::torrent_flags::no_verify_files;
		}
		m_session->async_add_torrent(std::move(parameters));
	}

	void start()
	{
		m_active = true;
		if (!m_options.seeds) start_download();
		else if (m_handle.is_valid()) connect();
	}

	void start_download()
	{
		if (m_options.downloads > 0 && m_number == m_options.downloads) return;
		++m_number;
		m_of_download = 0;
		if (!m_others.empty()) m_other = m_draws.next() % m_others.size();
		say("download %" PRId64 " start %s", m_number
			, m_others.empty() ? "-" : m_options.from[m_other].c_str());
		if (m_options.timeout_ms > 0)
		{
			m_timeout.expires_after(std::chrono::milliseconds(m_options.timeout_ms));
			m_timeout.async_wait([this, number = m_number](lt::error_code const& error)
				{ if (!error && number == m_number && m_active) end_download("timeout"); });
		}
		m_active = true;
		add_torrent();
	}

	void end_download(char const* const how)
	{
		m_active = false;
		m_timeout.cancel();
		m_reconnect.cancel();
		say("received %" PRId64, m_received);
		say("download %" PRId64 " %s %" PRId64, m_number, how, m_of_download);
		if (m_options.downloads == m_number) return;
		// Gone for good, so that the next one begins from nothing.
		m_session->remove_torrent(m_handle);
		std::int64_t const pause_ms = m_options.pauses_ms.empty()
			? 0 : m_options.pauses_ms[m_draws.next() % m_options.pauses_ms.size()];
		m_next.expires_after(std::chrono::milliseconds(pause_ms) + std::chrono::milliseconds(1));
		m_next.async_wait([this](lt::error_code const& error) { if (!error) start_download(); });
	}

	// Nothing to do for who has nobody to connect to: it is the other end that connects.
	void connect()
	{
		if (m_active && !m_others.empty()) m_handle.connect_peer(m_others[m_other]);
	}

	void drain_alerts()
	{
		std::vector<lt::alert*> alerts;
		m_session->pop_alerts(&alerts);
		for (lt::alert* const one : alerts) on_alert(one);
	}

	void on_alert(lt::alert* const one)
	{
		if (auto const* const a = lt::alert_cast<lt::add_torrent_alert>(one))
		{
			if (a->error) throw std::runtime_error("the torrent: " + a->error.message());
			m_handle = a->handle;
			connect();
		}
		else if (auto const* const a = lt::alert_cast<lt::peer_connect_alert>(one))
		{
			say("connected %s", print(a->endpoint).c_str());
		}
		else if (auto const* const a = lt::alert_cast<lt::peer_disconnected_alert>(one))
		{
			say("disconnected %s %s", print(a->endpoint).c_str(), a->error.message().c_str());
			if (!m_active || m_others.empty() || a->handle != m_handle) return;
			m_reconnect.expires_after(reconnect_pause);
			m_reconnect.async_wait([this](lt::error_code const& error)
				{ if (!error) connect(); });
		}
		else if (auto const* const a = lt::alert_cast<lt::torrent_finished_alert>(one))
		{
			if (!m_options.seeds && m_active && a->handle == m_handle) end_download("done");
		}
		else if (auto const* const a = lt::alert_cast<lt::listen_failed_alert>(one))
		{
			throw std::runtime_error("cannot listen: " + a->message());
		}
		else if (auto const* const a = lt::alert_cast<lt::torrent_error_alert>(one))
		{
			throw std::runtime_error("the torrent: " + a->message());
		}
	}

	static std::string print(lt::tcp::endpoint const& endpoint)
	{
		return endpoint.address().to_string() + ":" + std::to_string(endpoint.port());
	}

	void beat()
	{
		say("beat %" PRId64, m_received);
		m_beat.expires_after(beat_interval);
		m_beat.async_wait([this](lt::error_code const& error) { if (!error) beat(); });
	}

	struct socket
	{
		int number = 0;
		std::int64_t said_us = 0;
		int most_in_flight = 0;
	};

	// Draws that follow a seed (SplitMix64, as the content).
	struct draws
	{
		std::uint64_t state;
		std::uint64_t next()
		{
			std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
			z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
			z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
			return z ^ (z >> 31);
		}
	};

	options m_options;
	std::shared_ptr<lt::torrent_info> m_torrent;
	lt::io_context m_ios{1};
	boost::asio::steady_timer m_beat;
	boost::asio::steady_timer m_next;
	boost::asio::steady_timer m_reconnect;
	boost::asio::steady_timer m_timeout;
	draws m_draws;
	std::vector<lt::tcp::endpoint> m_others;
	lt::session* m_session = nullptr;
	lt::torrent_handle m_handle;

	std::map<void const*, socket> m_sockets;
	std::int64_t m_requests_said_us = 0;
	bool m_requests_slow_start = false;
	std::int64_t m_received_said_us = 0;
	std::int64_t m_received = 0;

	std::int64_t m_number = 0;
	std::int64_t m_of_download = 0;
	std::size_t m_other = 0;
	bool m_active = false;
};

} // namespace
} // namespace peer

int main(int const argc, char* argv[])
try
{
	// Whoever ends the program takes its log as it stands.
	std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
	peer::options const o = peer::parse(argc, argv);
	std::printf("onionlab-peer %d role=%s rule=%s libtorrent=%s transport=%s size=%" PRId64
		" piece=%d sample_us=%" PRId64 "\n", peer::log_format, o.seeds ? "seed" : "fetch"
		, lt::aux::request_rule(), lt::version(), o.utp ? "utp" : "tcp", o.size_bytes
		, o.piece_bytes, o.sample_us);
	peer::peer(o).run();
	return 0;
}
catch (peer::usage_error const& error)
{
	std::fprintf(stderr, "libtorrent-peer: %s\n", error.what());
	return 2;
}
catch (std::exception const& error)
{
	std::fprintf(stderr, "libtorrent-peer: %s\n", error.what());
	return 1;
}
