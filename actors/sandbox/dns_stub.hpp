// The resolver of the namespace: UDP and TCP on 127.0.0.53:53, every message carried as it is to the supervisor over the one Mediate
// stream. Looks into nothing and remembers nothing. A question that comes while there is no stream waits for one until its 10 s are over.
#pragma once

#include <absl/status/statusor.h>

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/sandbox/call.hpp"

namespace openshell::sandbox {

class DnsStub {
 public:
  static constexpr std::size_t kMaxQuestions = 512;  ///< waiting for an answer, both transports; more are dropped or closed
  static constexpr std::size_t kMaxTcpClients = 256;
  static constexpr std::size_t kMaxUdpBytes = 65'535;
  static constexpr std::chrono::seconds kQuestionDeadline{10};  ///< per question, read and write on TCP

  /// `address` is 127.0.0.53 and `port` 53 outside tests; port 0: an ephemeral one, the same for both transports. FailedPrecondition when
  /// it is taken or not permitted.
  static absl::StatusOr<std::shared_ptr<DnsStub>> bind(boost::asio::io_context& io, const std::string& address, std::uint16_t port);
  virtual ~DnsStub() = default;

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// The stream of a Mediate call that holds the lease; `released` runs when it has ended.
  [[nodiscard]] virtual std::shared_ptr<CallStream> stream(std::function<void()> released) = 0;
  virtual void stop() = 0;

  struct Statistics {
    std::uint64_t questions = 0, answers = 0, dropped = 0, expired = 0;
  };
  [[nodiscard]] virtual Statistics statistics() const = 0;
};

}  // namespace openshell::sandbox
