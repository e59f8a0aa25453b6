// The public gRPC service as a registry of handlers.
//
// The shell takes every call of openshell.v1.OpenShell, authenticates it, checks it against the authorization option in the method's
// descriptor, decodes the request and gives it to the handler registered under the method's name. A method without a handler answers
// UNIMPLEMENTED and says its name. Handlers do not know gRPC:
//
//   router.unary<GetSandboxRequest, SandboxResponse>("GetSandbox", [=](Context ctx, GetSandboxRequest request, Reply<SandboxResponse>
//   reply) {
//     ... later, on any thread:  reply.ok(response);  or  reply.fail(absl::NotFoundError("sandbox not found"));
//   });
//   router.server_stream<WatchSandboxRequest, SandboxStreamEvent>("WatchSandbox", [=](Context ctx, WatchSandboxRequest request,
//   Stream<Nothing, SandboxStreamEvent> stream) {...}); router.client_stream<PushSandboxLogsRequest,
//   PushSandboxLogsResponse>("PushSandboxLogs", [=](Context ctx, Stream<PushSandboxLogsRequest, PushSandboxLogsResponse> stream) {...});
//   router.bidi<RelayFrame, RelayFrame>("RelayStream", [=](Context ctx, Stream<RelayFrame, RelayFrame> stream) {...});
//
// Handlers are called on a gRPC thread and must not block: hand over to an actor or the store and return. Reply and Stream are handles that
// may be copied, kept and used from any thread; when the last copy goes without an answer the call ends INTERNAL `<method> was dropped
// without an answer`.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message_lite.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/call_context.hpp"

namespace openshell::api {

using Context = std::shared_ptr<const CallContext>;

constexpr std::size_t kMaxRequestBytes = 1U << 20;  ///< one inbound message; larger ones end RESOURCE_EXHAUSTED

namespace internal {

/// One call on the wire, without types. Implemented by the shell; thread-safe. Messages are owned by who holds them.
class Call {
 public:
  virtual ~Call() = default;
  /// One read at a time. `then(nullptr)` when the caller has closed its direction or the call is over. `into` stays alive in the closure.
  virtual void read(std::shared_ptr<google::protobuf::MessageLite> into, std::function<void(bool)> then) = 0;
  virtual void write(const google::protobuf::MessageLite& message, std::function<void(bool)> then) = 0;
  /// Ends the call, with a last message where `last` is given, once all queued writes are out. Later calls do nothing.
  virtual void finish(absl::Status status, const google::protobuf::MessageLite* last) = 0;
  virtual void on_done(std::function<void()> callback) = 0;
  [[nodiscard]] virtual std::size_t queued_bytes() const = 0;
  [[nodiscard]] virtual bool over() const = 0;
  /// The answer repeats an earlier one: response metadata `openshell-replayed: true`. Before the answer.
  virtual void mark_replayed() {}
  /// Of a stream with a request_id: how its work ended is not known, although the call may end well.
  virtual void leave_unresolved() {}
};

/// Ends the call as INTERNAL when the last handle goes without an answer.
class Handle {
 public:
  explicit Handle(std::shared_ptr<Call> call) : call_{std::move(call)} {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { call_->finish(absl::InternalError("call was dropped without an answer"), nullptr); }
  [[nodiscard]] Call& call() const { return *call_; }

 private:
  std::shared_ptr<Call> call_;
};

}  // namespace internal

/// The answer to a unary call. The first of ok() and fail() counts.
template <class Response>
class Reply {
 public:
  explicit Reply(std::shared_ptr<internal::Handle> handle) : handle_{std::move(handle)} {}
  void ok(const Response& response) const { handle_->call().finish(absl::OkStatus(), &response); }
  void fail(const absl::Status& status) const { handle_->call().finish(status, nullptr); }
  /// Called once when the call is over: answered, cancelled, deadline passed or connection lost. At once if it already is.
  void on_done(std::function<void()> callback) const { handle_->call().on_done(std::move(callback)); }
  [[nodiscard]] bool over() const { return handle_->call().over(); }

 private:
  std::shared_ptr<internal::Handle> handle_;
};

struct Nothing {};  ///< stands for the inbound type of a stream that has no (more) inbound messages

/// One streaming call. Writes are queued in order and sent one after the other; `queued_bytes()` is what the transport has not taken yet: a
/// producer that can be slowed should wait for `written` before it makes more.
template <class In, class Out>
class Stream {
 public:
  explicit Stream(std::shared_ptr<internal::Handle> handle) : handle_{std::move(handle)} {}

  /// Asks for one message; `then` gets it, or nullopt when the caller has closed its direction or the call is over. Not asking is
  /// back-pressure. One read at a time.
  void read(std::function<void(std::optional<In>)> then) const {
    auto message = std::make_shared<In>();
    handle_->call().read(message, [message, then = std::move(then)](bool got) { got ? then(std::move(*message)) : then(std::nullopt); });
  }
  /// Queues a message; `written(false)` when the call ended before it went out.
  void write(const Out& message, std::function<void(bool)> written = {}) const { handle_->call().write(message, std::move(written)); }
  /// Ends the call after all that is queued.
  void finish(const absl::Status& status) const { handle_->call().finish(status, nullptr); }
  /// Ends it well, with `last` as the last message (the only one of a client-streaming call).
  void finish_with(const Out& last) const { handle_->call().finish(absl::OkStatus(), &last); }
  /// Called once when the call is over, whoever ended it. At once if it already is.
  void on_done(std::function<void()> callback) const { handle_->call().on_done(std::move(callback)); }
  /// Before the end, where what runs behind the call may outlive it: a repetition of its request_id is then told that nothing is known.
  void leave_unresolved() const { handle_->call().leave_unresolved(); }
  [[nodiscard]] std::size_t queued_bytes() const { return handle_->call().queued_bytes(); }
  [[nodiscard]] bool over() const { return handle_->call().over(); }

 private:
  std::shared_ptr<internal::Handle> handle_;
};

/// Filled before the server starts, read only afterwards.
class Router {
 public:
  enum class Kind { kUnary, kServerStream, kClientStream, kBidi };
  using Start = std::function<void(Context, std::shared_ptr<internal::Call>)>;

  Router();
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  template <class Request, class Response, class Handler>
  void unary(std::string_view method, Handler handler) {
    add(method, Kind::kUnary, Request::descriptor()->full_name(), Response::descriptor()->full_name(),
        one_request<Request>([handler](Context ctx, Request request, auto handle) {
          handler(std::move(ctx), std::move(request), Reply<Response>{std::move(handle)});
        }));
  }
  template <class Request, class Event, class Handler>
  void server_stream(std::string_view method, Handler handler) {
    add(method, Kind::kServerStream, Request::descriptor()->full_name(), Event::descriptor()->full_name(),
        one_request<Request>([handler](Context ctx, Request request, auto handle) {
          handler(std::move(ctx), std::move(request), Stream<Nothing, Event>{std::move(handle)});
        }));
  }
  template <class In, class Response, class Handler>
  void client_stream(std::string_view method, Handler handler) {
    streaming<In, Response>(method, Kind::kClientStream, std::move(handler));
  }
  template <class In, class Out, class Handler>
  void bidi(std::string_view method, Handler handler) {
    streaming<In, Out>(method, Kind::kBidi, std::move(handler));
  }

  /// Null: nobody registered the method.
  [[nodiscard]] const Start* find(std::string_view method) const;

 private:
  /// Aborts the program where the method is unknown to the descriptor, has other types or another kind, or is registered twice: that is a
  /// mistake in the code.
  void add(std::string_view method, Kind kind, std::string_view request, std::string_view response, Start start);

  template <class Request, class Next>
  static Start one_request(Next next) {
    return [next](Context ctx, std::shared_ptr<internal::Call> call) {
      auto request = std::make_shared<Request>();
      auto handle = std::make_shared<internal::Handle>(std::move(call));
      handle->call().read(request, [ctx, next, request, handle](bool got) {
        if (!got) return handle->call().finish(absl::InvalidArgumentError("the call has no request message"), nullptr);
        next(ctx, std::move(*request), handle);
      });
    };
  }
  template <class In, class Out, class Handler>
  void streaming(std::string_view method, Kind kind, Handler handler) {
    add(method, kind, In::descriptor()->full_name(), Out::descriptor()->full_name(),
        [handler](Context ctx, std::shared_ptr<internal::Call> call) {
          handler(std::move(ctx), Stream<In, Out>{std::make_shared<internal::Handle>(std::move(call))});
        });
  }

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace openshell::api
