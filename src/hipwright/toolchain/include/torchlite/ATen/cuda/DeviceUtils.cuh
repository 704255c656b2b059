#pragma once
#include <hw_cuda.h>
