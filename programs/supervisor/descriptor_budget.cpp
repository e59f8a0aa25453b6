#include "programs/supervisor/descriptor_budget.hpp"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace openshell::supervisor {
namespace {

constexpr std::size_t kPerRelay = 2;
constexpr std::size_t kReserve = 64;  // gRPC, DNS, logs, relays of people, and pipes of the moment

}  // namespace

std::size_t affordable_relays(std::size_t limit, std::size_t used, std::size_t most) noexcept {
  const std::size_t taken = used + kReserve;
  const std::size_t left = limit > taken ? limit - taken : 0;
  return std::clamp<std::size_t>(left / kPerRelay, 1, most);
}

std::size_t budget_descriptors(std::size_t most) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  const auto soft = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = soft;
  std::error_code ignored;
  const auto used = std::distance(std::filesystem::directory_iterator{"/proc/self/fd", ignored}, std::filesystem::directory_iterator{});
  const auto relays = affordable_relays(limit.rlim_cur, static_cast<std::size_t>(used), most);
  if (relays < most) spdlog::warn("{} descriptors are enough for {} relays at once, not for {}", limit.rlim_cur, relays, most);
  return relays;
}

}  // namespace openshell::supervisor
