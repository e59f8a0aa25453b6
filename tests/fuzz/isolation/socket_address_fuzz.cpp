// A sockaddr as a workload may pass it: any bytes, any length up to the kernel's limit.
#include <cstdint>
#include <cstdlib>

#include "isolation/socket_address.hpp"

using openshell::isolation::SocketAddress;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto address = SocketAddress::from_sockaddr(std::as_bytes(std::span{data, size < 128 ? size : 128}));
  if (!address.ok()) return 0;
  sockaddr_storage storage;
  const socklen_t length = address->to_sockaddr(storage);
  const auto again = SocketAddress::from_sockaddr(std::as_bytes(std::span{&storage, 1}).first(length));
  if (!again.ok() || *again != *address) std::abort();
  if (address->normalized().is_v4_mapped() || address->is_loopback() != address->normalized().is_loopback()) std::abort();
  const auto literal = SocketAddress::parse(address->address_text(), address->port());
  if (!literal.ok() || literal->text() != address->text()) std::abort();
  return 0;
}
