// The service that a workload finds at http://policy.local, behind the engine. The engine speaks the HTTP; what is answered is decided by
// who implements this.
#pragma once

#include <absl/functional/any_invocable.h>

#include <memory>
#include <string>

namespace openshell::egress {

struct Generation;

struct LocalRequest {
  static constexpr std::size_t kMaxBodyBytes = 65'536;
  std::string method;
  std::string path;   ///< as sent, without query
  std::string query;  ///< as sent, without '?'
  std::string body;
  std::string binary;  ///< who asks; empty where not known
};

struct LocalResponse {
  int status = 200;
  std::string json;
};

class LocalApi {
 public:
  LocalApi() = default;
  LocalApi(const LocalApi&) = delete;
  LocalApi& operator=(const LocalApi&) = delete;
  virtual ~LocalApi() = default;

  /// A generation is in force. I/O thread; returns at once.
  virtual void published(std::shared_ptr<const Generation> generation) = 0;
  /// I/O thread; returns at once. `done` runs once, on any thread. `caller` expires when nobody waits for the answer any more.
  virtual void handle(LocalRequest request, std::weak_ptr<const void> caller, absl::AnyInvocable<void(LocalResponse)> done) = 0;
};

}  // namespace openshell::egress
