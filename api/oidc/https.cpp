#include "api/oidc/https.hpp"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "observability/text.hpp"

namespace openshell::oidc {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kLookAround{100};  ///< how often a wait asks whether it is cancelled
constexpr std::uint32_t kMaxHeaderBytes = 64 * 1024;

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

/// Boost 1.81 takes `127.0.0.1.evil.test` for the address 127.0.0.1 and a path `.evil.test`: a path that begins with anything but a slash
/// is no path. Absent: not a URL with a host.
std::optional<boost::urls::url_view> parse_url(std::string_view text) {
  const auto url = boost::urls::parse_uri(boost::core::string_view{text.data(), text.size()});
  if (!url || url->host().empty()) return std::nullopt;
  if (!url->encoded_path().empty() && !url->encoded_path().starts_with('/')) return std::nullopt;
  return *url;
}

/// Name or address without brackets.
std::string bare_host(const boost::urls::url_view& url) {
  std::string host{url.encoded_host()};
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

bool numeric_loopback(const boost::urls::url_view& url) {
  const std::string host = bare_host(url);
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/// A question to the system's resolver. Nothing can end it before its time, so it has a thread of its own, which is left behind where
/// nobody waits any more.
class Lookup {
 public:
  Lookup(const std::string& host, const std::string& port) {
    std::thread{[state = state_, host, port] {
      asio::io_context io;
      error_code error;
      auto found = tcp::resolver{io}.resolve(host, port, error);
      const std::lock_guard lock{state->mutex};
      state->answer = {error, std::move(found)};
      state->done.notify_all();
    }}.detach();
  }
  /// Absent: not yet.
  std::optional<std::pair<error_code, tcp::resolver::results_type>> wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock{state_->mutex};
    state_->done.wait_for(lock, time, [this] { return state_->answer.has_value(); });
    return state_->answer;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<std::pair<error_code, tcp::resolver::results_type>> answer;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// One request; run() drives it and may leave it behind, so it owns all it touches.
class Exchange {
 public:
  Exchange(const boost::urls::url_view& url, const HttpsOptions& options) : tls_{asio::ssl::context::tls_client} {
    host_ = bare_host(url);
    secure_ = url.scheme() == "https";
    port_ = url.has_port() && !url.port().empty() ? std::string{url.port()} : secure_ ? "443" : "80";
    request_.method(http::verb::get);
    request_.version(11);
    request_.target(url.encoded_target().empty() ? "/" : std::string{url.encoded_target()});
    request_.set(http::field::host, std::string{url.encoded_host_and_port()});
    request_.set(http::field::accept, "application/json");
    request_.set(http::field::user_agent, "openshell");
    request_.set(http::field::connection, "close");
    trust(options);
  }
  ~Exchange() { OPENSSL_cleanse(request_.body().data(), request_.body().size()); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void post(std::string form) {
    request_.method(http::verb::post);
    request_.set(http::field::content_type, "application/x-www-form-urlencoded");
    request_.body() = std::move(form);
    request_.prepare_payload();
  }

  absl::StatusOr<HttpsAnswer> run(const std::string& url, const HttpsOptions& options) {
    const auto end = std::chrono::steady_clock::now() + options.timeout;
    const auto given_up = [&]() -> absl::Status {
      if (std::chrono::steady_clock::now() >= end)
        return absl::UnavailableError(cat(url, ": no answer within ", options.timeout.count(), " ms"));
      if (options.cancelled && options.cancelled()) return absl::UnavailableError(cat(url, ": given up"));
      return absl::OkStatus();
    };
    Lookup lookup{host_, port_};
    auto found = lookup.wait_for(kLookAround);
    for (; !found; found = lookup.wait_for(kLookAround)) {
      if (auto status = given_up(); !status.ok()) return status;
    }
    failure_ = found->first;
    if (!failure_) asio::co_spawn(io_, perform(std::move(found->second)), asio::detached);
    while (!failure_ && !done_) {
      if (auto status = given_up(); !status.ok()) return status;
      io_.run_for(kLookAround);
      if (io_.stopped() && !done_) return absl::UnavailableError(cat(url, ": no answer"));
    }
    if (failure_ == http::error::body_limit)
      return absl::ResourceExhaustedError(cat("the answer of ", url, " is longer than ", kMaxAnswerBytes, " bytes"));
    if (failure_) return absl::UnavailableError(cat(url, ": ", failure_.message()));
    return HttpsAnswer{static_cast<int>(parser_.get().result_int()), std::move(parser_.get().body())};
  }

 private:
  void trust(const HttpsOptions& options) {
    error_code ignored;
    tls_.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_sslv3, ignored);
    if (!secure_) return;
    if (!options.verify) return (void)tls_.set_verify_mode(asio::ssl::verify_none, ignored);
    tls_.set_default_verify_paths(ignored);
    if (!options.extra_ca_pem.empty()) tls_.add_certificate_authority(asio::buffer(options.extra_ca_pem), ignored);
    tls_.set_verify_mode(asio::ssl::verify_peer, ignored);
    tls_.set_verify_callback(asio::ssl::host_name_verification(host_), ignored);
  }

  asio::awaitable<void> perform(tcp::resolver::results_type found) {
    co_await connect_and_ask(std::move(found));
    done_ = true;
  }

  asio::awaitable<void> connect_and_ask(tcp::resolver::results_type found) {
    asio::ssl::stream<tcp::socket> stream{io_, tls_};
    co_await asio::async_connect(stream.next_layer(), found, into(failure_));
    if (failure_) co_return;
    if (!secure_) {
      co_await ask(stream.next_layer());
      co_return;
    }
    SSL_set_tlsext_host_name(stream.native_handle(), host_.c_str());
    co_await stream.async_handshake(asio::ssl::stream_base::client, into(failure_));
    if (!failure_) co_await ask(stream);
  }

  template <class Stream>
  asio::awaitable<void> ask(Stream& stream) {
    co_await http::async_write(stream, request_, into(failure_));
    if (failure_) co_return;
    parser_.header_limit(kMaxHeaderBytes);
    parser_.body_limit(kMaxAnswerBytes);
    co_await http::async_read(stream, buffer_, parser_, into(failure_));
  }

  asio::ssl::context tls_;
  std::string host_, port_;
  bool secure_ = true;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  boost::beast::flat_buffer buffer_;
  error_code failure_;
  bool done_ = false;
  asio::io_context io_;  // last: what still waits in it goes before what it uses
};

/// application/x-www-form-urlencoded: everything but the unreserved characters of RFC 3986 is escaped.
void append_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view{"-._~"}.find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    out += plain ? std::string{c} : std::string{'%', kHex[byte >> 4], kHex[byte & 15]};
  }
}

}  // namespace

absl::Status check_url(std::string_view text, bool loopback_http) {
  const auto url = parse_url(text);
  if (!url || url->has_userinfo() || url->has_fragment())
    return absl::InvalidArgumentError(cat("'", text, "' is not a URL with a host, without user and fragment"));
  if (url->scheme() == "https") return absl::OkStatus();
  if (url->scheme() != "http") return absl::InvalidArgumentError(cat("'", text, "' must start with https://"));
  if (loopback_http && numeric_loopback(*url)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      cat("'", text, "' must start with https://", numeric_loopback(*url) ? "" : "; http:// is for a numeric loopback address only"));
}

std::string origin_of(std::string_view text) {
  const auto url = parse_url(text);
  if (!url) return {};
  const std::string scheme = lower(std::string{url->scheme()});
  const std::string port = url->has_port() && !url->port().empty() ? std::string{url->port()} : scheme == "http" ? "80" : "443";
  return cat(scheme, "://", lower(std::string{url->encoded_host()}), ":", port);
}

absl::StatusOr<HttpsAnswer> https_get(const std::string& url, const HttpsOptions& options) {
  if (auto status = check_url(url, true); !status.ok()) return status;
  Exchange exchange{*parse_url(url), options};
  return exchange.run(url, options);
}

absl::StatusOr<HttpsAnswer> https_post(const std::string& url, const std::map<std::string, Secret>& form, const HttpsOptions& options) {
  if (auto status = check_url(url, true); !status.ok()) return status;
  Exchange exchange{*parse_url(url), options};
  std::string body;
  for (const auto& [name, value] : form) {
    body += cat(body.empty() ? "" : "&", name, "=");
    append_escaped(body, value.reveal());
  }
  exchange.post(std::move(body));
  return exchange.run(url, options);
}

}  // namespace openshell::oidc
