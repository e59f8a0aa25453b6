#include "api/http_session.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include "storage/store.hpp"

namespace openshell::api {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

template <class Stream>
asio::awaitable<void> serve(Stream& stream, HttpHandler handler) {
  beast::flat_buffer buffer{kMaxHttpHeaderBytes + kMaxHttpBodyBytes};
  error_code error;
  while (true) {
    http::request_parser<http::string_body> parser;
    parser.header_limit(kMaxHttpHeaderBytes);
    parser.body_limit(kMaxHttpBodyBytes);
    beast::get_lowest_layer(stream).expires_after(std::chrono::seconds{kHttpIdleSeconds});
    co_await http::async_read(stream, buffer, parser, into(error));
    if (error) co_return;
    const auto& request = parser.get();
    const HttpAnswer answer =
        handler({std::string{request.method_string()}, std::string{request.target()}, std::string{request[http::field::host]}});
    http::response<http::string_body> response{static_cast<http::status>(answer.status), request.version()};
    response.set("x-request-id", request.count("x-request-id") == 1 ? std::string{request["x-request-id"]} : storage::new_uuid());
    if (!answer.body.empty()) response.set(http::field::content_type, answer.content_type);
    response.keep_alive(request.keep_alive());
    if (request.method() == http::verb::head) {
      response.content_length(answer.body.size());
    } else {
      response.body() = answer.body;
      response.prepare_payload();
    }
    const bool close = response.need_eof();
    http::response_serializer<http::string_body> serializer{response};
    if (request.method() == http::verb::head) serializer.split(true);
    if (request.method() == http::verb::head) {
      co_await http::async_write_header(stream, serializer, into(error));
    } else {
      co_await http::async_write(stream, serializer, into(error));
    }
    if (error || close) co_return;
  }
}

}  // namespace

std::shared_ptr<asio::ssl::context> http_tls_context(const TlsMaterial& tls) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_sslv3, error);
  context->use_certificate_chain(asio::buffer(tls.certificate_chain), error);
  if (error) return nullptr;
  const auto key = tls.private_key.reveal();
  context->use_private_key(asio::buffer(key.data(), key.size()), asio::ssl::context::pem, error);
  if (error) return nullptr;
  SSL_CTX_set_alpn_select_cb(
      context->native_handle(),
      [](SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned int in_size, void*) {
        static constexpr unsigned char kHttp1[] = "\x08http/1.1";
        unsigned char* chosen = nullptr;
        if (SSL_select_next_proto(&chosen, out_size, kHttp1, sizeof(kHttp1) - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED)
          return SSL_TLSEXT_ERR_ALERT_FATAL;
        *out = chosen;
        return SSL_TLSEXT_ERR_OK;
      },
      nullptr);
  return context;
}

asio::awaitable<void> serve_http(asio::ip::tcp::socket socket, HttpHandler handler) {
  beast::tcp_stream stream{std::move(socket)};
  co_await serve(stream, std::move(handler));
}

asio::awaitable<void> serve_https(asio::ip::tcp::socket socket, asio::ssl::context& tls, HttpHandler handler) {
  beast::ssl_stream<beast::tcp_stream> stream{beast::tcp_stream{std::move(socket)}, tls};
  error_code error;
  beast::get_lowest_layer(stream).expires_after(std::chrono::seconds{kHandshakeSeconds});
  co_await stream.async_handshake(asio::ssl::stream_base::server, into(error));
  if (error) co_return;
  co_await serve(stream, std::move(handler));
  beast::get_lowest_layer(stream).expires_after(std::chrono::seconds{1});
  co_await stream.async_shutdown(into(error));
}

}  // namespace openshell::api
