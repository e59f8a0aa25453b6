// The pages of the operator interface, built in: no file of the disk is read, nothing is loaded from elsewhere.
#pragma once

#include <string_view>
#include <vector>

namespace openshell::api {

struct PageFile {
  std::string_view path;  ///< of the request: "/", "/static/map.js"
  std::string_view content_type;
  std::string_view content;
};

[[nodiscard]] const std::vector<PageFile>& page_files();

}  // namespace openshell::api
