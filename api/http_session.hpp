// One HTTP/1.1 connection of the front, with or without TLS. Internal to the front.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "api/http.hpp"
#include "api/shell.hpp"

namespace boost::asio::ssl {
class context;
}

namespace openshell::api {

constexpr int kHandshakeSeconds = 10;

/// TLS 1.2 and 1.3, ALPN `http/1.1`. Null where certificate and key do not fit.
std::shared_ptr<boost::asio::ssl::context> http_tls_context(const TlsMaterial& tls);

boost::asio::awaitable<void> serve_http(boost::asio::ip::tcp::socket socket, HttpHandler handler);
boost::asio::awaitable<void> serve_https(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context& tls, HttpHandler handler);

}  // namespace openshell::api
